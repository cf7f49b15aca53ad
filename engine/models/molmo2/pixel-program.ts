/** Cuts a picture into the patches of overlapping crops, on the threads that decode pictures. */
import type { PixelProgram, PixelTools, RgbImage } from "../../multimodal/pixel-program.ts";
import type { ItemTensor } from "../../multimodal/processed-item.ts";
import type { TileGridSize } from "../tiles/tile-values.ts";
import { resizeBilinear } from "./bilinear.ts";
import { canvasPatches, cropGrid, MOST_POOLED, parseCropOptions, pooledGrids, type CropOptions } from "./crops.ts";
import { layOutPicture, pictureTokens } from "./layout.ts";

/**
 * - `pixel_values` float32 [numCrops, patches of a crop, values of a patch]: the whole picture, then its crops row by row
 * - `pooled_patches` int64 [numPooled, MOST_POOLED]: the patches of each embedding among all; -1 for none
 * - `token_kinds` int64 [numTokens]: the number of each token among `pictureTokens`
 * - `token_features` int64 [numTokens]: one more than the number of its embedding; 0 for tokens without one
 */
export const toTensors: PixelProgram = (image, json, { valuesOfBytes }) => {
  const options = parseCropOptions(json);
  const { side, patchesPerSide, is_frame: isFrame } = options;
  const grid = isFrame ? { rows: 0, columns: 0 } : cropGrid(image, options);
  const values = createPatchValues(1 + grid.rows * grid.columns, options, valuesOfBytes(options.scaling));
  values.add(resizeBilinear(image, { width: side, height: side }), 0, 0);
  const pooledPatches = windows({ rows: patchesPerSide, columns: patchesPerSide }, options, (row, column) => {
    return row * patchesPerSide + column;
  });
  if (!isFrame) {
    addCrops(values, image, grid, options);
    const { rows, columns } = canvasPatches(grid, options);
    pooledPatches.push(...windows({ rows, columns }, options, (row, column) => patchOf(row, column, grid, options)));
  }
  const tokens = layOutPicture(pooledGrids(image, options), options);
  let numFeatures = 0;
  return new Map<string, ItemTensor>([
    ["pixel_values", values.tensor],
    ["pooled_patches", int64([pooledPatches.length / MOST_POOLED, MOST_POOLED], pooledPatches)],
    [
      "token_kinds",
      int64(
        [tokens.length],
        tokens.map((token) => pictureTokens.indexOf(token)),
      ),
    ],
    [
      "token_features",
      int64(
        [tokens.length],
        tokens.map((token) => (token === "patch" ? ++numFeatures : 0)),
      ),
    ],
  ]);
};

function int64(shape: readonly number[], values: readonly number[]): ItemTensor {
  return { elementType: "int64", shape, data: BigInt64Array.from(values, BigInt) };
}

/** The squares of a grid row by row, each with its patches row by row, padded at both sides of an axis, more at its end. */
function windows(
  { rows, columns }: TileGridSize,
  { pooling_size: [height, width] }: CropOptions,
  patchAt: (row: number, column: number) => number,
): number[] {
  const padding = (size: number, window: number): number => Math.floor((Math.ceil(size / window) * window - size) / 2);
  const above = padding(rows, height);
  const before = padding(columns, width);
  const patches: number[] = [];
  for (let top = -above; top < rows; top += height) {
    for (let left = -before; left < columns; left += width) {
      for (let row = top; row < top + height; row++) {
        for (let column = left; column < left + width; column++) {
          const isWithin = row >= 0 && row < rows && column >= 0 && column < columns;
          patches.push(isWithin ? patchAt(row, column) : -1);
        }
      }
      for (let rest = height * width; rest < MOST_POOLED; rest++) patches.push(-1);
    }
  }
  return patches;
}

/** A patch of the canvas among those of the whole picture and of all crops: in the crop that shows it away from its edges. */
function patchOf(row: number, column: number, grid: TileGridSize, options: CropOptions): number {
  const { patchesPerSide: side, windowPatches, overlap_margins: margins } = options;
  const cropOf = (place: number, numCrops: number): number =>
    Math.min(Math.max(Math.floor((place - margins[0]) / windowPatches), 0), numCrops - 1);
  const cropRow = cropOf(row, grid.rows);
  const cropColumn = cropOf(column, grid.columns);
  const crop = 1 + cropRow * grid.columns + cropColumn;
  return (crop * side + row - cropRow * windowPatches) * side + column - cropColumn * windowPatches;
}

interface PatchValues {
  /** Adds the crop of the picture that begins there. */
  add(this: void, picture: RgbImage, left: number, top: number): void;
  readonly tensor: ItemTensor;
}

function addCrops(values: PatchValues, image: RgbImage, grid: TileGridSize, options: CropOptions): void {
  const { patch_size: patch, windowPatches } = options;
  const { rows, columns } = canvasPatches(grid, options);
  const canvas = resizeBilinear(image, { width: columns * patch, height: rows * patch });
  const step = windowPatches * patch;
  for (let row = 0; row < grid.rows; row++) {
    for (let column = 0; column < grid.columns; column++) values.add(canvas, column * step, row * step);
  }
}

function createPatchValues(
  numCrops: number,
  { patch_size: patch, patchesPerSide: side }: CropOptions,
  valueOf: ReturnType<PixelTools["valuesOfBytes"]>,
): PatchValues {
  const numValues = patch * patch * 3;
  const data = new Float32Array(numCrops * side * side * numValues);
  let to = 0;
  return {
    add({ data: bytes, width }, left, top) {
      for (let index = 0; index < side * side; index++) {
        const x = left + (index % side) * patch;
        const y = top + Math.floor(index / side) * patch;
        for (let row = y; row < y + patch; row++) {
          let from = (row * width + x) * 3;
          for (let column = 0; column < patch; column++) {
            for (let channel = 0; channel < 3; channel++) data[to++] = valueOf[channel]![bytes[from++]!]!;
          }
        }
      }
    },
    tensor: { elementType: "float32", shape: [numCrops, side * side, numValues], data },
  };
}
