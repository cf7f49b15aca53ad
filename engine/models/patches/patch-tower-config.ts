/**
 * The part of the configuration that the towers of Qwen2-VL, its successors and GLM-4.1V share: pictures of any size, cut
 * into patches of which a square becomes one embedding.
 */
import { z } from "zod";

import { headCount, layerCount, patchSide, positiveNumber, unsupportedField } from "../config-field.ts";

export interface PatchTowerConfig {
  /** Width of the tower. */
  readonly embedDim: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly intermediateSize: number;
  readonly numChannels: number;
  readonly patchSize: number;
  /** Number of pictures that a patch spans; a still picture is repeated. */
  readonly temporalPatchSize: number;
  /** Side of the squares of patches that become one embedding. */
  readonly mergeSize: number;
  readonly ropeTheta: number;
}

const DEFAULT_THETA = 10000;

/** Fields with the same default in all of them, for their schemas. */
export const patchTowerFields = {
  spatial_merge_size: patchSide.default(2),
  temporal_patch_size: patchSide.default(2),
  rope_parameters: z.looseObject({ rope_theta: positiveNumber.default(DEFAULT_THETA) }).nullish(),
};

const sharedFields = z.object({ depth: layerCount, num_heads: headCount, patch_size: patchSide, ...patchTowerFields });

/** A width, with the name of its field. */
export interface NamedWidth {
  readonly field: string;
  readonly value: number;
}

/** Widths of a tower and, if it makes the embeddings itself, of them and of the decoder's hidden state, which must match. */
export interface PatchTowerWidths {
  readonly tower: NamedWidth;
  /** Field of the number of heads. Default: `num_heads`. */
  readonly heads?: string;
  readonly output?: NamedWidth;
  readonly textHiddenSize?: number;
}

/**
 * @param fields The tower's parsed object.
 * @throws EngineError `unsupported_model` if heads or widths do not fit together.
 */
export function patchTower(
  fields: z.output<typeof sharedFields>,
  path: string,
  { tower, heads = "num_heads", output, textHiddenSize }: PatchTowerWidths,
): Omit<PatchTowerConfig, "intermediateSize"> {
  const { num_heads: numHeads } = fields;
  if (tower.value % numHeads !== 0 || (tower.value / numHeads) % 4 !== 0) {
    const reason = `${tower.field} ${tower.value} does not divide into heads whose size is a multiple of 4`;
    throw unsupportedField(path, heads, numHeads, reason);
  }
  if (output !== undefined && output.value !== textHiddenSize) {
    throw unsupportedField(path, output.field, output.value, `the decoder's is ${textHiddenSize}`);
  }
  return {
    embedDim: tower.value,
    numLayers: fields.depth,
    numHeads,
    numChannels: 3,
    patchSize: fields.patch_size,
    temporalPatchSize: fields.temporal_patch_size,
    mergeSize: fields.spatial_merge_size,
    ropeTheta: fields.rope_parameters?.rope_theta ?? DEFAULT_THETA,
  };
}
