/** Patches of pictures, and pictures of patches. */
import { expect, test } from "vitest";

import { patchTensors, pictureOfPatches } from "../../../../engine/models/patches/patch-values.ts";

test.for([
  { patchSize: 2, mergeSize: 2, rows: 4, columns: 6 },
  { patchSize: 3, mergeSize: 1, rows: 2, columns: 5 },
  { patchSize: 1, mergeSize: 3, rows: 6, columns: 3 },
])("patches of $patchSize pixels in squares of $mergeSize become their picture again", (size) => {
  const { patchSize, mergeSize, rows, columns } = size;
  const [width, height] = [columns * patchSize, rows * patchSize];
  const data = Uint8Array.from({ length: 3 * width * height }, (_, index) => (index * 89) % 256);
  const values = [0, 1000, 2000].map((first) => Float32Array.from({ length: 256 }, (_, byte) => first + byte));
  const tensors = patchTensors({ width, height, data }, { patchSize, mergeSize, numTimes: 1, values });
  const patches = tensors.get("pixel_values")!.data as Float32Array;
  const grid = Array.from(tensors.get("image_grid_thw")!.data, Number);
  expect(grid).toEqual([1, rows, columns]);
  const picture = pictureOfPatches(patches, [rows, columns], { patchSize, mergeSize });
  const expected = values.flatMap((valueOf, channel) =>
    Array.from({ length: width * height }, (_, place) => valueOf[data[3 * place + channel]!]!),
  );
  expect(Array.from(picture)).toEqual(expected);
});

test("a patch has the planes of every frame by colour, and repeats the last one", () => {
  const frame = (first: number) => ({
    width: 2,
    height: 2,
    data: Uint8Array.from({ length: 12 }, (_, index) => first + index),
  });
  const values = [0, 1000, 2000].map((first) => Float32Array.from({ length: 256 }, (_, byte) => first + byte));
  const layout = { patchSize: 2, mergeSize: 1, numTimes: 3, values };
  const tensors = patchTensors({ ...frame(0), further: [frame(100)] }, layout);
  const planeOf = (channel: number, first: number) =>
    [0, 1, 2, 3].map((pixel) => 1000 * channel + first + 3 * pixel + channel);
  const expected = [0, 1, 2].flatMap((channel) => [0, 100, 100].flatMap((first) => planeOf(channel, first)));
  expect(tensors.get("pixel_values")!.shape).toEqual([1, 36]);
  expect(Array.from(tensors.get("pixel_values")!.data, Number)).toEqual(expected);
});
