/** The pipeline module of MiniGPT-4. Its language models are plain Vicunas, so no model's name leads to it. */
import type { Pipeline, PipelineParams } from "../pipelines/pipeline.ts";

export const availablePipelines = ["minigpt4-7b", "minigpt4-13b"];

export async function getPipeline(name: string, params: PipelineParams): Promise<Pipeline | null> {
  if (!availablePipelines.includes(name)) return null;
  const { createMiniGpt4Pipeline } = await import("./minigpt4-pipeline.ts");
  return createMiniGpt4Pipeline(name, params);
}

export function getPipelineFromModelName(): null {
  return null;
}
