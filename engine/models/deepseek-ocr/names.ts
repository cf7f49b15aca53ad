/** Names of tensors in checkpoints of DeepSeek-OCR: DeepSeek's own, and those of transformers. */
import type { SamNames } from "../sam/vision-tower.ts";
import type { WeightSource } from "../weight-source.ts";

export interface OcrNames {
  /** Prefix of the decoder. */
  readonly decoder: string;
  readonly sam: SamNames;
  /** Prefix of the second encoder. */
  readonly encoder: string;
  /** Tables of queries, for tiles and for the whole picture. */
  readonly queries: readonly [string, string];
  readonly projector: string;
  /** The row behind all others of a picture. */
  readonly separator: string;
  /** The row at the end of each line. */
  readonly lineEnd: string;
}

const publishedSam = "model.sam_model.";

const published = (hasQueries: boolean): OcrNames => ({
  decoder: "model.",
  sam: {
    convolution: `${publishedSam}patch_embed.proj`,
    positions: `${publishedSam}pos_embed`,
    layers: `${publishedSam}blocks.`,
    norms: ["norm1", "norm2"],
    neck: {
      convolutions: [`${publishedSam}neck.0`, `${publishedSam}neck.2`],
      norms: [`${publishedSam}neck.1`, `${publishedSam}neck.3`],
    },
    downsampling: [`${publishedSam}net_2`, `${publishedSam}net_3`],
  },
  encoder: hasQueries ? "model.qwen2_model.model.model." : "model.vision_model.",
  queries: ["model.qwen2_model.query_768.weight", "model.qwen2_model.query_1024.weight"],
  projector: "model.projector.layers",
  separator: "model.view_seperator",
  lineEnd: "model.image_newline",
});

const nativeTower = "model.vision_tower.";
const nativeSam = `${nativeTower}sam_encoder.`;

const native: OcrNames = {
  decoder: "model.language_model.",
  sam: {
    convolution: `${nativeSam}patch_embed.projection`,
    positions: `${nativeSam}pos_embed`,
    layers: `${nativeSam}layers.`,
    norms: ["layer_norm1", "layer_norm2"],
    neck: {
      convolutions: [`${nativeSam}neck.conv1`, `${nativeSam}neck.conv2`],
      norms: [`${nativeSam}neck.layer_norm1`, `${nativeSam}neck.layer_norm2`],
    },
    downsampling: [`${nativeSam}proj.conv1`, `${nativeSam}proj.conv2`],
  },
  encoder: `${nativeTower}vision_encoder.`,
  queries: [`${nativeTower}query_768_resolution.weight`, `${nativeTower}query_1024_resolution.weight`],
  projector: "model.multi_modal_projector",
  separator: "model.view_separator",
  lineEnd: "model.image_newline",
};

/** The names of this checkpoint; transformers keeps DeepSeek's in files that it writes. */
export function ocrNames(weights: WeightSource, hasQueries: boolean): OcrNames {
  const names = published(hasQueries);
  return !weights.has(names.sam.positions) && weights.has(native.sam.positions) ? native : names;
}
