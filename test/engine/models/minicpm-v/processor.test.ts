import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import type { ImagePart } from "../../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { ProcessedPrompt } from "../../../../engine/input/input-processor.ts";
import { patchPlaces, positionIds } from "../../../../engine/models/minicpm-v/patches.ts";
import {
  largestImageSize,
  largestWholeSize,
  numCropEmbeddings,
  sliceLayout,
} from "../../../../engine/models/minicpm-v/slices.ts";
import type { ItemTensor } from "../../../../engine/multimodal/processed-item.ts";
import { hubPictureReference } from "../../../support/checkpoints/hub-checkpoints.ts";
import { createHubInputs } from "../../input/golden-inputs.ts";
import type { GoldenInputs } from "../../input/golden-inputs.ts";
import { numpyFile } from "../../multimodal/embedding-files.ts";

type Size = readonly [height: number, width: number];

interface Recorded {
  readonly layouts: readonly {
    readonly width: number;
    readonly height: number;
    readonly most: number;
    readonly resolution: number;
    readonly mode: "16x" | "4x";
    readonly enlarges: boolean;
    readonly whole: Size;
    readonly grid: readonly [rows: number, columns: number] | null;
    readonly slice: Size | null;
  }[];
  /** For a table of `side` rows: the row of each of `length` patches. */
  readonly positions: readonly { readonly side: number; readonly length: number; readonly rows: readonly number[] }[];
  /** By picture: SHA-256 of the pixel values, crop by crop in rows of patches. */
  readonly pixels: Readonly<Record<string, string>>;
}

const file = new URL("../../../fixtures/hub/minicpm-v-4.6/pictures.json", import.meta.url);
const recorded = JSON.parse(readFileSync(file, "utf8")) as Recorded;
const never = new AbortController().signal;
const mergeSizes = { "16x": 4, "4x": 2 } as const;
const shipped = { mostSlices: 9, resolution: 448, patchSize: 14, mergeSize: 4, enlargesPictures: true } as const;

async function process(inputs: GoldenInputs, image: ImagePart, mmProcessorOptions = {}): Promise<ProcessedPrompt> {
  const tokenIds = [inputs.imageInputs!.imageTokenId];
  const prompt = { kind: "tokens", tokenIds, images: [image] } as const;
  const request = { requestId: "request", prompt, samplingParams: createSamplingParams(), mmProcessorOptions };
  return inputs.inputProcessor.process(request, never);
}

function numbersOf(prompt: ProcessedPrompt, name: string): number[] {
  return Array.from((prompt.images[0]!.tensors.get(name) as ItemTensor<"int64">).data, Number);
}

test("the slices of 300 sizes equal those of transformers", () => {
  expect(recorded.layouts).toHaveLength(300);
  const sizeOf = ([height, width]: Size) => ({ width, height });
  for (const { most, resolution, mode, enlarges, whole, grid, slice, ...picture } of recorded.layouts) {
    const options = {
      mostSlices: most,
      resolution,
      patchSize: 14,
      mergeSize: mergeSizes[mode],
      enlargesPictures: enlarges,
    };
    const slices = grid === null ? null : { rows: grid[0], columns: grid[1], size: sizeOf(slice!) };
    expect(sliceLayout(picture, options), JSON.stringify({ picture, options })).toEqual({
      whole: sizeOf(whole),
      slices,
    });
  }
});

test("positions of patches equal those of transformers' tower", () => {
  expect(recorded.positions.length).toBeGreaterThan(90);
  for (const { side, length, rows } of recorded.positions) {
    expect(Array.from(positionIds(length, side)), `${length} of ${side}`).toEqual(rows);
  }
});

test.for([
  shipped,
  { ...shipped, mergeSize: 2 },
  { ...shipped, mostSlices: 1 },
  { ...shipped, mergeSize: 2, mostSlices: 1, enlargesPictures: false },
  { ...shipped, mostSlices: 4, resolution: 300 },
  { ...shipped, resolution: 32, patchSize: 4 },
])("no picture has more embeddings than the largest: %o", (options) => {
  const count = (size: { width: number; height: number }) => numCropEmbeddings(sliceLayout(size, options), options);
  const most = count(largestImageSize(options)).total;
  const wholeMost = numCropEmbeddings({ whole: largestWholeSize(options), slices: null }, options).total;
  const largestSide = 6 * Math.ceil(Math.sqrt(options.mostSlices)) * options.resolution;
  const larger: object[] = [];
  for (let height = 1; height < largestSide; height = Math.ceil(height * 1.03)) {
    const longest = Math.min(200 * height, largestSide);
    for (let width = Math.ceil(height / 200); width <= longest; width = Math.ceil(width * 1.03)) {
      const { ofWhole, total } = count({ width, height });
      if (total > most || ofWhole > wholeMost) larger.push({ width, height, total, ofWhole });
    }
  }
  expect(larger).toEqual([]);
});

test("pixel values are bit-identical to those of transformers", async () => {
  await using inputs = await createHubInputs("minicpm-v-4.6");
  const pictures = Object.entries(recorded.pixels);
  expect(pictures).toHaveLength(5);
  for (const [picture, hash] of pictures) {
    const prompt = await process(inputs, { type: "image", reference: await hubPictureReference(picture) });
    const { data, shape } = prompt.images[0]!.tensors.get("pixel_values") as ItemTensor<"float32">;
    const numFeatures = shape[1]!;
    const [rows, columns, sliceRows, sliceColumns, rowsOfSlice, columnsOfSlice] = numbersOf(prompt, "slice_grid");
    const slice = { rows: rowsOfSlice!, columns: columnsOfSlice! };
    const crops = [
      { rows: rows!, columns: columns! },
      ...Array.from({ length: sliceRows! * sliceColumns! }, () => slice),
    ];
    // Behind a picture without slices is a black square.
    const numExtra = sliceRows === 0 ? 16 : 0;
    const inRows = new Float32Array(data.length - numExtra * numFeatures);
    let patch = 0;
    for (const crop of crops) {
      const first = patch;
      for (const { row, column } of patchPlaces(crop, 4)) {
        const values = data.subarray(patch * numFeatures, ++patch * numFeatures);
        inRows.set(values, (first + row * crop.columns + column) * numFeatures);
      }
    }
    expect(patch + numExtra).toBe(shape[0]);
    expect(createHash("sha256").update(Buffer.from(inRows.buffer)).digest("hex"), picture).toBe(hash);
  }
});

test("a request may leave out numbers and slices, and show more of them", async () => {
  await using inputs = await createHubInputs("minicpm-v-4.6");
  const image = { type: "image", reference: await hubPictureReference("drawing.png") } as const;
  const { tokenizer } = inputs.options;
  const markersOf = async (options: object): Promise<string[]> => {
    const { promptTokenIds } = await process(inputs, image, options);
    const spelling = promptTokenIds.map((id) => tokenizer.token(id)).join("");
    return spelling.match(/<image_id>.|<image>|<slice>|Ċ/g) ?? [];
  };
  const whole = ["<image_id>0", "<image>"];
  const row = ["<slice>", "<slice>", "<slice>"];
  expect(await markersOf({})).toEqual([...whole, ...row, "Ċ", ...row]);
  expect(await markersOf({ use_image_id: false })).toEqual(["<image>", ...row, "Ċ", ...row]);
  expect(await markersOf({ slice_mode: false })).toEqual(whole);
  expect(await markersOf({ max_slice_nums: 2 })).toEqual([...whole, "<slice>", "<slice>"]);
});

test.for([
  [{ patch_size: 8 }, "patch_size is 8; the vision encoder's patches have 4 pixels"],
  [{ downsample_mode: "4x" }, "downsample_mode is 4x; that of config.json is 16x"],
  [{ scale_resolution: 4096, max_slice_nums: 144 }, "scale_resolution is 4096; with max_slice_nums 144 a picture has"],
  [{ do_resize: false }, "do_resize is false; expected true"],
  [{ small_image_upsize: "adaptive" }, 'small_image_upsize is "adaptive": sizes that depend on the letters'],
] as const)("options that the tower does not follow are rejected: %o", async ([options, message]) => {
  await using inputs = await createHubInputs("minicpm-v-4.6");
  const { processor } = inputs.imageInputs!;
  expect(() => processor.checkOptions({ ...processor.options, ...options })).toThrow(message);
});

test("a picture that is too elongated is rejected", () => {
  expect(() => sliceLayout({ width: 201, height: 1 }, shipped)).toThrow("an aspect ratio of 201; the limit is 200");
});

test("embeddings of a request for 4.7 need their grid, from which their positions follow", async () => {
  await using inputs = await createHubInputs("minicpm-v-4.7", { settings: { enableMmEmbeds: true } });
  const bytes = numpyFile("<f4", [6, 32], Buffer.alloc(6 * 32 * 4));
  const part = { type: "image_embeds", reference: `data:;base64,${bytes.toString("base64")}` } as const;
  await expect(process(inputs, part)).rejects.toMatchObject({ code: "invalid_image" });
  const { positions, promptTokenIds } = await process(inputs, { ...part, grid: [1, 8, 12] });
  // Two rows of three embeddings, between the tokens of the number and a marker before, and a marker behind.
  const { length } = promptTokenIds;
  const [, heights, widths] = [0, 1, 2].map((axis) =>
    Array.from(positions!.axes.subarray(axis * length, (axis + 1) * length)),
  );
  expect(heights).toEqual([0, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5]);
  expect(widths).toEqual([0, 1, 2, 2, 3, 4, 5, 3, 4, 5, 6]);
  expect(positions!.next).toBe(7);
});

test("embeddings of a request are a picture without slices", async () => {
  await using inputs = await createHubInputs("minicpm-v-4.6", { settings: { enableMmEmbeds: true } });
  const embeddings = (rows: number): ImagePart => {
    const bytes = numpyFile("<f4", [rows, 32], Buffer.alloc(rows * 32 * 4));
    return { type: "image_embeds", reference: `data:;base64,${bytes.toString("base64")}` };
  };
  // Five embeddings between two markers, after the three tokens of the number.
  expect((await process(inputs, embeddings(5))).promptTokenIds).toHaveLength(10);
  await expect(process(inputs, embeddings(40))).rejects.toMatchObject({ code: "invalid_argument" });
});
