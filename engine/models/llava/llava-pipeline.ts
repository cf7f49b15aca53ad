/** LLaVA 1.5 as a pipeline: CLIP and the projector from a checkpoint in Hugging Face's form. */
import type { Pipeline, PipelineParams } from "../pipelines/pipeline.ts";
import { readFolderJson, readPreprocessor, requireTextParam } from "../pipelines/vision-folder.ts";
import { parseLlavaConfig } from "./config.ts";
import { llavaVisionEncoder, projectorPrefixes, towerPrefixes } from "./definition.ts";

export async function createLlavaPipeline(name: string, params: PipelineParams): Promise<Pipeline> {
  const folder = requireTextParam(params, "vision_model", "the folder of a checkpoint such as llava-1.5-7b-hf");
  const config = parseLlavaConfig(await readFolderJson(folder, "config.json"));
  return {
    name,
    imageStart: "",
    imageEnd: "",
    imagePlaceholder: "<image>",
    // As in text-generation-webui: the vocabulary of Vicuna has no token for images.
    placeholderTokenId: 0,
    weights: [{ path: folder, prefixes: [...towerPrefixes, ...projectorPrefixes] }],
    preprocessorConfig: await readPreprocessor(folder),
    visionEncoder: ({ hiddenSize }) => llavaVisionEncoder(config, hiddenSize),
  };
}
