/** GOT-OCR 2.0 (`stepfun-ai/GOT-OCR-2.0-hf`): a page, or tiles of it, through SAM's encoder into Qwen2. */
import type { Value } from "../../graph/value.ts";
import { projectorContext, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import { decoderNames } from "../llava/definition.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { joinRows } from "../sam/picture-rows.ts";
import { buildSamTower, samFeatureSide, type SamNames } from "../sam/vision-tower.ts";
import { createTileEncoder } from "../tiles/tile-encoder.ts";
import { patchesPerSide } from "../vision-transformer/config.ts";
import { findPrefix } from "../weight-source.ts";
import { parseGotOcr2Config, type GotOcr2Config } from "./config.ts";
import { gotOcr2Inputs } from "./processor.ts";

const instruction = "You should follow the instructions carefully and explain your answers in detail.";

/**
 * Checkpoints on the hub have none. This is the prompt that the processor of transformers makes: without line breaks
 * between the messages, all pictures of a message before its text, and ` OCR: ` as the question if there is none.
 */
const chatTemplate = `
{%- if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n${instruction}<|im_end|>' }}{% endif %}
{%- for message in messages %}
  {{- '<|im_start|>' + message['role'] + '\\n' }}
  {%- if message['content'] is string %}
    {{- message['content'] }}
  {%- else %}
    {%- set found = namespace(image=false, text=false) %}
    {%- for part in message['content'] if part['type'] == 'image' %}
      {%- if not found.image %}{{ '<img>' }}{% endif %}
      {%- set found.image = true %}{{ '<imgpad>' }}
    {%- endfor %}
    {%- if found.image %}{{ '</img>\\n' }}{% endif %}
    {%- for part in message['content'] if part['type'] == 'text' %}{% set found.text = true %}{{ part['text'] }}{% endfor %}
    {%- if found.image and not found.text %}{{ ' OCR: ' }}{% endif %}
  {%- endif %}
  {{- '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}`;

export const gotOcr2Definition: ModelDefinition = {
  architecture: "GotOcr2ForConditionalGeneration",
  images: gotOcr2Inputs,
  chatTemplate,
  configure(json): ConfiguredModel {
    const config = parseGotOcr2Config(json);
    const { text, sam } = config;
    return {
      decoder: decoderDimensions(text),
      maxPositionEmbeddings: text.maxPositionEmbeddings,
      imageTokenId: config.imageTokenId,
      visionEncoder: createTileEncoder({
        ...sam,
        numImageTokens: samFeatureSide(patchesPerSide(sam)) ** 2,
        hiddenSize: text.hiddenSize,
        hasProjector: true,
        embed: (context, pixels) => embedTiles(context, config, pixels),
      }),
      buildDecoder(context, maxModelLen) {
        const names = decoderNames(context.weights);
        buildDecoderGraph(context, { config: text, ...names, acceptsImages: true, maxModelLen });
      },
    };
  },
};

/** Pixels of tiles to [numTiles * numImageTokens, hiddenSize], tile after tile. */
function embedTiles(context: GraphContext, { sam, text }: GotOcr2Config, pixels: Value): Value {
  const { weights } = context;
  const tower = findPrefix(weights, ["vision_tower.", "model.vision_tower."], "pos_embed");
  const projector = findPrefix(
    weights,
    ["multi_modal_projector.", "model.multi_modal_projector."],
    "multimodal_projector.weight",
  );
  const features = buildSamTower(context, sam, samNames(tower, projector), { pixels, side: patchesPerSide(sam) });
  const { context: own, input } = projectorContext(context, joinRows(context, "features.rows", features));
  const { hiddenSize } = text;
  const layer = {
    name: `${projector}multimodal_projector`,
    inFeatures: hiddenSize,
    outFeatures: hiddenSize,
    hasBias: true,
  };
  return linear(own, input, layer, own.precision.vision);
}

function samNames(tower: string, projector: string): SamNames {
  return {
    convolution: `${tower}patch_embed.projection`,
    positions: `${tower}pos_embed`,
    layers: `${tower}layers.`,
    norms: ["layer_norm1", "layer_norm2"],
    neck: {
      convolutions: [`${tower}neck.conv1`, `${tower}neck.conv2`],
      norms: [`${tower}neck.layer_norm1`, `${tower}neck.layer_norm2`],
    },
    downsampling: [`${projector}conv_upsampler1`, `${projector}conv_upsampler2`],
  };
}
