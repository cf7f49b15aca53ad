import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import { cropGrid, largestPicture, parseCropOptions, pooledGrids } from "../../../../engine/models/molmo2/crops.ts";
import { layOutPicture } from "../../../../engine/models/molmo2/layout.ts";
import { splitFields } from "../../../../engine/multimodal/field-config.ts";
import type { ProcessorOptions } from "../../../../engine/multimodal/multimodal-processor.ts";
import type { ItemTensor } from "../../../../engine/multimodal/processed-item.ts";
import { hubPictureReference } from "../../../support/checkpoints/hub-checkpoints.ts";
import { createHubInputs } from "../../input/golden-inputs.ts";

interface Recorded {
  readonly grids: readonly {
    readonly width: number;
    readonly height: number;
    readonly options: ProcessorOptions;
    /** Embeddings: rows and columns of the whole picture, then of its crops. */
    readonly grid: readonly [number, number, number, number];
    /** With the whole picture. */
    readonly numCrops: number;
  }[];
  /** By picture: SHA-256 of the pixels in 256 levels, and of the patches of each embedding. */
  readonly pictures: Readonly<Record<string, readonly [levels: string, pooled: string]>>;
}

const file = new URL("../../../fixtures/hub/molmo2/pictures.json", import.meta.url);
const recorded = JSON.parse(readFileSync(file, "utf8")) as Recorded;

test("the crops of 200 pictures equal those of transformers", () => {
  expect(recorded.grids).toHaveLength(200);
  for (const { options: json, grid, numCrops, ...size } of recorded.grids) {
    const options = parseCropOptions(json);
    const { rows, columns } = cropGrid(size, options);
    const { whole, crops } = pooledGrids(size, options);
    const found = [whole.rows, whole.columns, crops?.rows, crops?.columns, 1 + rows * columns];
    expect(found, JSON.stringify({ size, json })).toEqual([...grid, numCrops]);
  }
});

test.for<[options: ProcessorOptions, numTokens: number]>([
  [{}, 1414],
  [{ max_crops: 1 }, 424],
  [{ image_use_col_tokens: false }, 1320],
])("with %j no picture has more tokens than the largest, %i", ([json, numTokens]) => {
  const options = parseCropOptions(json);
  const count = (size: { readonly width: number; readonly height: number }): number =>
    layOutPicture(pooledGrids(size, options), options).length;
  expect(count(largestPicture(options, count))).toBe(numTokens);
  for (let width = 1; width < 6000; width += 241) {
    for (let height = 1; height < 6000; height += 233) {
      expect(count({ width, height }), `${width}x${height}`).toBeLessThanOrEqual(numTokens);
    }
  }
});

const sha256 = (data: Uint8Array | BigInt64Array): string =>
  createHash("sha256")
    .update(Buffer.from(data.buffer, data.byteOffset, data.byteLength))
    .digest("hex");

test("pixels and pooled patches are bit-identical to those of transformers", async () => {
  await using inputs = await createHubInputs("molmo2");
  const { processor } = inputs.imageInputs!;
  const pictures = Object.entries(recorded.pictures);
  expect(pictures).toHaveLength(5);
  for (const [picture, hashes] of pictures) {
    const [, base64] = (await hubPictureReference(picture)).split(",");
    const encoded = { bytes: Buffer.from(base64!, "base64"), parameter: "picture" };
    const batch = await processor.processImages([encoded], processor.options, new AbortController().signal);
    const [tensors] = splitFields(batch.fields, processor.fieldConfigs(batch));
    const pooled = tensors!.get("pooled_patches") as ItemTensor<"int64">;
    // Windows have 4 patches, and room for 9.
    const windows = pooled.data.filter((_, index) => index % 9 < 4);
    const pixels = tensors!.get("pixel_values") as ItemTensor<"float32">;
    const levels = Uint8Array.from(pixels.data, (value) => Math.round((value * 0.5 + 0.5) * 255));
    expect([sha256(levels), sha256(windows)], picture).toEqual(hashes);
  }
});
