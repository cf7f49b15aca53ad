/** MiniGPT-4: BLIP-2's vision model and Q-Former, and one projection to the width of a Llama. */
import { parseBlip2Config, type Blip2Config } from "../blip2/config.ts";
import { buildQFormer } from "../blip2/q-former.ts";
import { buildBlip2Vision } from "../blip2/vision-tower.ts";
import { projectorContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";
import type { Pipeline, PipelineParams } from "../pipelines/pipeline.ts";
import { readFolderJson, readPreprocessor, requireTextParam } from "../pipelines/vision-folder.ts";
import { createPictureEncoder } from "../vision-transformer/picture-encoder.ts";

const projection = "llama_proj";

export async function createMiniGpt4Pipeline(name: string, params: PipelineParams): Promise<Pipeline> {
  const folder = requireTextParam(
    params,
    "vision_model",
    "the folder of a BLIP-2 checkpoint such as blip2-flan-t5-xxl",
  );
  const projector = requireTextParam(
    params,
    "projector",
    `a safetensors file with ${projection}.weight and ${projection}.bias`,
  );
  const config = parseBlip2Config(await readFolderJson(folder, "config.json"));
  return {
    name,
    imageStart: "<Img>",
    imageEnd: "</Img>",
    imagePlaceholder: "<ImageHere>",
    placeholderTokenId: 0,
    weights: [
      { path: folder, prefixes: ["vision_model.", "qformer.", "query_tokens"] },
      { path: projector, prefixes: [`${projection}.`] },
    ],
    preprocessorConfig: await readPreprocessor(folder),
    visionEncoder: ({ hiddenSize }) => createVisionEncoder(config, hiddenSize),
  };
}

function createVisionEncoder({ vision, qFormer }: Blip2Config, hiddenSize: number): VisionEncoderDefinition {
  return createPictureEncoder({
    ...vision,
    numImageTokens: qFormer.numQueryTokens,
    hiddenSize,
    hasProjector: true,
    embed(towerContext, pixels) {
      const states = buildBlip2Vision(towerContext, vision, "vision_model.", pixels);
      const { context, input } = projectorContext(towerContext, states);
      const queries = buildQFormer(context, qFormer, { prefix: "qformer.", queryTokens: "query_tokens" }, input);
      const layer = { name: projection, inFeatures: qFormer.hiddenSize, outFeatures: hiddenSize, hasBias: true };
      return linear(context, queries, layer, context.precision.vision);
    },
  });
}
