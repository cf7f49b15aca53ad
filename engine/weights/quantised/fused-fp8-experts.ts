/** FP8 experts that a checkpoint stores in one tensor for a whole layer, and their scales in another. */
import { bytesPerElement } from "../safetensors.ts";
import type { StoredTensor } from "../stored-tensor.ts";
import { requireScales } from "./float8.ts";
import {
  floatTypes,
  invalidCheckpoint,
  modulesWith,
  requirePart,
  type LocatedMatrix,
  type Tensors,
} from "./quantisation.ts";

/** By the last part of the name of the scales: the projections of an expert that are one matrix with joint blocks. */
const projectionsBySuffix = {
  gate_up_proj_scale_inv: ["gate_proj", "up_proj"],
  down_proj_scale_inv: ["down_proj"],
} as const;

export const fusedScaleSuffixes = Object.keys(projectionsBySuffix);

/**
 * The matrices of single experts, whose codes `withSeparateExperts` shows. Scales are [experts], or [experts, rows,
 * columns] of blocks in the order of the codes' axes, or one for all.
 *
 * @param blockSize Of the codes as they are stored; null if the numbers of codes and scales decide.
 * @throws EngineError `invalid_checkpoint` if there is not one scale for each block.
 */
export function* locateFusedExperts(
  tensors: Tensors,
  blockSize: readonly [number, number] | null,
): Generator<[module: string, LocatedMatrix]> {
  for (const [suffix, projections] of Object.entries(projectionsBySuffix)) {
    for (const [experts, scales] of modulesWith(tensors, suffix)) {
      requirePart(tensors, scales.name, experts, floatTypes);
      const codesOf = (expert: number, projection: string): StoredTensor =>
        requirePart(tensors, `${experts}.${expert}.${projection}.weight`, scales.name, ["float8e4m3"]);
      let numExperts = 1;
      while (tensors.has(`${experts}.${numExperts}.${projections[0]}.weight`)) numExperts++;
      for (let expert = 0; expert < numExperts; expert++) {
        const { shape, columnStride } = codesOf(expert, projections[0]);
        const [outFeatures, inFeatures] = shape as readonly [number, number];
        const numRows = outFeatures * projections.length;
        const isByColumn = columnStride !== undefined;
        const own = scalesOf(scales, expert, numExperts, isByColumn);
        const [scaleRows] = own.shape as readonly [number, number];
        const derived = [numRows % scaleRows === 0 ? numRows / scaleRows : numRows, inFeatures] as const;
        const stored = isByColumn && blockSize !== null ? ([blockSize[1], blockSize[0]] as const) : blockSize;
        const blockShape = stored ?? derived;
        requireScales(own, [numRows, inFeatures], blockShape);
        for (const [index, projection] of projections.entries()) {
          const codes = codesOf(expert, projection);
          const firstRow = index * outFeatures;
          const matrix = { kind: "float8", codes, scales: own, blockShape, firstRow } as const;
          yield [`${experts}.${expert}.${projection}`, { shape: [outFeatures, inFeatures], matrix }];
        }
      }
    }
  }
}

/** Scales [rows, columns] of the blocks of one expert. */
function scalesOf(scales: StoredTensor, expert: number, numExperts: number, isByColumn: boolean): StoredTensor {
  const numScales = scales.shape.reduce((product, size) => product * size, 1);
  if (numScales === 1) return { ...scales, shape: [1, 1] };
  const [first = 1, second = 1, ...more] = scales.shape.slice(1);
  if (scales.shape[0] !== numExperts || more.length > 0) {
    throw invalidCheckpoint(
      `Tensor ${scales.name} has shape [${scales.shape.join(", ")}]; expected scales of ${numExperts} experts.`,
    );
  }
  const byteLength = first * second * bytesPerElement[scales.elementType];
  const own = { ...scales, byteOffset: scales.byteOffset + expert * byteLength, byteLength };
  return isByColumn ? { ...own, shape: [second, first], columnStride: second } : { ...own, shape: [first, second] };
}
