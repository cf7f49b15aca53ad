/** Configuration of Granite 4 Vision: SigLIP over tiles, Q-Formers over windows of patches, and Granite's decoder. */
import { z } from "zod";

import { parseQFormer, type QFormerConfig } from "../blip2/config.ts";
import { parseConfigObject, pictureSide, refuseOtherThan, unsupportedField } from "../config-field.ts";
import { parseTextConfig, type DecoderConfig } from "../llama/config.ts";
import type { Resolution } from "../llava-next/image-options.ts";
import { siglipTower } from "../siglip/vision-tower.ts";
import { patchesPerSide, type VisionConfig } from "../vision-transformer/config.ts";

/** Features of a layer of the tower for a layer of the decoder. */
export interface FeatureLevel {
  /** Prefix of the projector's tensors. */
  readonly projector: string;
  /** Number of layers of the tower before the states. */
  readonly towerLayers: number;
  /** The layer of the decoder to whose input the features are added. */
  readonly decoderLayer: number;
  /** Which patch of each square of 2 x 2 a feature begins with; null for the mean of its patches. */
  readonly corner: readonly [row: number, column: number] | null;
}

export interface Granite4VisionConfig {
  readonly text: DecoderConfig;
  readonly vision: VisionConfig;
  readonly qFormer: QFormerConfig;
  readonly imageTokenId: number;
  readonly resolutions: readonly Resolution[];
  /** By `decoderLayer`. */
  readonly levels: readonly FeatureLevel[];
  /** Sides of a window: of its queries, and of its patches. */
  readonly querySide: number;
  readonly windowSide: number;
  /** Embeddings of a tile, per side. */
  readonly featuresPerSide: number;
}

const corners = [
  [0, 0],
  [0, 1],
  [1, 0],
  [1, 1],
] as const;

/** More layers than either part has. */
const layerIndex = z.int().min(-1024).max(1024);

const fields = z.looseObject({
  text_config: z.looseObject({}).default({}),
  vision_config: z.looseObject({}).default({}),
  qformer_config: z.looseObject({}).nullish(),
  image_token_index: z.int().nonnegative().optional(),
  image_token_id: z.int().nonnegative().optional(),
  image_grid_pinpoints: z
    .array(z.tuple([pictureSide, pictureSide]))
    .nonempty()
    .nullish(),
  vision_feature_select_strategy: z.string().nullish(),
  downsample_rate: z.string(),
  deepstack_layer_map: z.array(z.tuple([layerIndex, layerIndex])).max(1024),
  spatial_vision_layer: layerIndex.default(-1),
  spatial_target_layers: z.array(layerIndex).length(corners.length).nullish(),
  tie_word_embeddings: z.boolean().optional(),
});
type Fields = z.output<typeof fields>;

const defaultResolutions: readonly Resolution[] = [
  [336, 672],
  [672, 336],
  [672, 672],
  [1008, 336],
  [336, 1008],
];
const defaultTargets = [12, 15, 18, 21];

/** transformers' defaults where they differ from BLIP-2's. */
const qFormerDefaults = { num_hidden_layers: 1, cross_attention_frequency: 1 };
/** Numbers of a head of the Q-Former. */
const Q_FORMER_HEAD = 64;

/** @throws EngineError `invalid_checkpoint` or `unsupported_model` that names the field. */
export function parseGranite4VisionConfig(json: unknown): Granite4VisionConfig {
  const parsed = parseConfigObject(fields, json, "");
  refuseOtherThan(json, "", { quantization_config: [] });
  refuseOtherThan(parsed.vision_config, "vision_config", { model_type: ["siglip_vision_model"] });
  const strategy = parsed.vision_feature_select_strategy ?? "default";
  if (strategy !== "full") {
    throw unsupportedField(
      "",
      "vision_feature_select_strategy",
      strategy,
      'expected "full": SigLIP has no class token',
    );
  }
  const text = parseTextConfig({ model_type: "granite4_vision_text", ...parsed.text_config });
  const vision = siglipTower.parseConfig(parsed.vision_config, "vision_config");
  const sides = windowSides(parsed, patchesPerSide(vision));
  const { hiddenSize } = vision;
  const forced = { hidden_size: hiddenSize, encoder_hidden_size: hiddenSize };
  const numHeads = Math.max(Math.floor(hiddenSize / Q_FORMER_HEAD), 1);
  const qFormer = { ...qFormerDefaults, ...parsed.qformer_config, ...forced, num_attention_heads: numHeads };
  return {
    text: { ...text, tieWordEmbeddings: parsed.tie_word_embeddings ?? text.tieWordEmbeddings },
    vision,
    qFormer: parseQFormer(qFormer, sides.querySide ** 2, vision),
    imageTokenId: parsed.image_token_index ?? parsed.image_token_id ?? 32_000,
    resolutions: parsed.image_grid_pinpoints ?? defaultResolutions,
    levels: levelsOf(parsed, vision.numLayers, text.numLayers),
    ...sides,
  };
}

function windowSides(
  { downsample_rate: rate }: Fields,
  side: number,
): Pick<Granite4VisionConfig, "querySide" | "windowSide" | "featuresPerSide"> {
  const [, queries, patches] = /^([1-9]\d{0,2})\/([1-9]\d{0,2})$/.exec(rate) ?? [];
  const [querySide, windowSide] = [Number(queries), Number(patches)];
  if (!(side % windowSide === 0 && windowSide === 2 * querySide)) {
    const reason = `expected a half, such as "4/8", whose second number divides ${side}, the patches of a side`;
    throw unsupportedField("", "downsample_rate", rate, reason);
  }
  return { querySide, windowSide, featuresPerSide: side / 2 };
}

function levelsOf(parsed: Fields, numTowerLayers: number, numDecoderLayers: number): readonly FeatureLevel[] {
  const { deepstack_layer_map: map, spatial_vision_layer: spatialLayer } = parsed;
  const targets = parsed.spatial_target_layers ?? defaultTargets;
  /** Of the states before the first layer and after each. */
  const statesOf = (field: string, layer: number): number => {
    const index = layer < 0 ? layer + numTowerLayers + 1 : layer;
    if (index >= 0 && index <= numTowerLayers) return index;
    throw unsupportedField("", field, layer, `the tower has ${numTowerLayers} layers`);
  };
  const levels = [
    ...map.map(([tower, decoderLayer], index) => ({
      projector: `layerwise_projectors.${index}.`,
      towerLayers: statesOf("deepstack_layer_map", tower),
      decoderLayer,
      corner: null,
    })),
    ...corners.map((corner, index) => ({
      projector: `spatial_projectors.${index}.`,
      towerLayers: statesOf("spatial_vision_layer", spatialLayer),
      decoderLayer: targets[index]!,
      corner,
    })),
  ];
  const layers = levels.map(({ decoderLayer }) => decoderLayer);
  const areLayers = layers.every((layer) => layer >= 0 && layer < numDecoderLayers);
  if (!areLayers || new Set(layers).size < layers.length) {
    const reason = `with deepstack_layer_map, expected different layers of the decoder's ${numDecoderLayers}`;
    throw unsupportedField("", "spatial_target_layers", targets, reason);
  }
  return levels.sort((left, right) => left.decoderLayer - right.decoderLayer);
}
