/** The pipeline module of LLaVA 1.5: its vision tower and projector over a text checkpoint of its language model. */
import type { Pipeline, PipelineParams } from "../pipelines/pipeline.ts";

export const availablePipelines = ["llava-v1.5-7b", "llava-v1.5-13b"];

export async function getPipeline(name: string, params: PipelineParams): Promise<Pipeline | null> {
  if (!availablePipelines.includes(name)) return null;
  const { createLlavaPipeline } = await import("./llava-pipeline.ts");
  return createLlavaPipeline(name, params);
}

/** LLaVA's language models were trained with its vision part. Without `vision_model`, the model serves text only. */
export async function getPipelineFromModelName(modelName: string, params: PipelineParams): Promise<Pipeline | null> {
  const name = modelName.toLowerCase();
  if (!name.includes("llava") || !name.includes("v1.5") || params.vision_model === undefined) return null;
  const pipeline = availablePipelines.find((available) => name.includes(available.slice("llava-v1.5-".length)));
  return pipeline === undefined ? null : getPipeline(pipeline, params);
}
