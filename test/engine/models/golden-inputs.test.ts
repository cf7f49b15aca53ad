/** Compares the models' processors with transformers for the same conversations and pictures. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import type { ChatMessage, ImagePart } from "../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import { parseTileOptions, tileGrid } from "../../../engine/models/idefics3/tiles.ts";
import {
  largestImageSize,
  parseImageOptions,
  squareGrid,
  type Qwen2VlImageOptions,
} from "../../../engine/models/qwen2-vl/image-options.ts";
import type { ItemTensor } from "../../../engine/multimodal/processed-item.ts";
import type { ImageSize } from "../../../engine/multimodal/processing-info.ts";
import { goldensFolder, loadGoldens, pictureReference, type GoldenCase } from "../../support/checkpoints/goldens.ts";
import { createGoldenInputs } from "../input/golden-inputs.ts";

const never = new AbortController().signal;

async function messagesOf(golden: GoldenCase): Promise<ChatMessage[]> {
  const references = await Promise.all(golden.pictures.map(pictureReference));
  return golden.messages.map(({ role, content }) => ({
    role,
    content: content.map((part) =>
      part.type === "image" ? ({ type: "image", reference: references.shift()! } satisfies ImagePart) : part,
    ),
  }));
}

test.for(["llava-siglip", "smolvlm"] as const)("%s: ids and pixel values equal those of transformers", async (name) => {
  await using inputs = await createGoldenInputs(name);
  const smallestDeviation = Math.min(...(inputs.imageInputs!.processor.options.image_std as number[]));
  const { cases } = await loadGoldens(name);
  for (const golden of cases) {
    const prompt = { kind: "chat", messages: await messagesOf(golden), addGenerationPrompt: true } as const;
    const request = { requestId: "request", prompt, samplingParams: createSamplingParams() };
    const { promptTokenIds, images } = await inputs.inputProcessor.process(request, never);
    expect(promptTokenIds).toEqual(golden.promptTokenIds);
    expect(images).toHaveLength(golden.pictures.length);
    // Of 255, in the unit of the values.
    const oneStep = 1 / 255 / smallestDeviation + 1e-6;
    let at = 0;
    for (const { tensors } of images) {
      const { data } = tensors.get("pixel_values") as ItemTensor<"float32">;
      const expected = golden.pixelValues!.subarray(at, at + data.length);
      const largest = data.reduce((max, value, index) => Math.max(max, Math.abs(value - expected[index]!)), 0);
      expect(largest).toBeLessThanOrEqual(oneStep);
      at += data.length;
    }
    expect(at).toBe(golden.pixelValues?.length ?? 0);
  }
});

interface RecordedGrid {
  readonly width: number;
  readonly height: number;
  readonly rows: number;
  readonly columns: number;
}

test("pictures of every shape are cut into the same tiles as by transformers", () => {
  const recorded = JSON.parse(readFileSync(join(goldensFolder, "smolvlm/tile_grids.json"), "utf8")) as RecordedGrid[];
  const options = parseTileOptions({ size: { longest_edge: 72 }, max_image_size: { longest_edge: 24 } });
  for (const { width, height, ...expected } of recorded) {
    const { rows, columns } = tileGrid({ width, height }, options);
    expect({ width, height, rows, columns }).toEqual({ width, height, ...expected });
  }
});

interface RecordedSquares {
  readonly width: number;
  readonly height: number;
  readonly grid: readonly [rows: number, columns: number] | null;
}

function gridOrRefusal(size: ImageSize, options: Qwen2VlImageOptions): readonly number[] | string {
  try {
    const { rows, columns } = squareGrid(size, options);
    return [rows, columns];
  } catch (error) {
    if (error instanceof EngineError) return error.code;
    throw error;
  }
}

test("pictures of every shape become as many squares as in transformers", () => {
  const recorded = JSON.parse(
    readFileSync(join(goldensFolder, "qwen2-vl/resized_grids.json"), "utf8"),
  ) as RecordedSquares[];
  const options = parseImageOptions({ patch_size: 6, min_pixels: 24 ** 2, max_pixels: 48 ** 2 });
  for (const { width, height, grid } of recorded) {
    const made = gridOrRefusal({ width, height }, options);
    expect({ width, height, made }).toEqual({ width, height, made: grid ?? "invalid_image" });
  }
});

test("qwen2-vl: ids, patches, grids and positions equal those of transformers", async () => {
  await using inputs = await createGoldenInputs("qwen2-vl");
  for (const golden of (await loadGoldens("qwen2-vl")).cases) {
    const mark = "<|vision_start|><|image_pad|><|vision_end|>";
    const parts = golden.messages[0]!.content.map((part) => (part.type === "text" ? part.text : mark));
    const references = await Promise.all(golden.pictures.map(pictureReference));
    const images = references.map((reference) => ({ type: "image", reference }) as const);
    const prompt = { kind: "text", text: parts.join(""), addSpecialTokens: false, images } as const;
    const request = { requestId: "request", prompt, samplingParams: createSamplingParams() };
    const processed = await inputs.inputProcessor.process(request, never);
    expect(processed.promptTokenIds).toEqual(golden.promptTokenIds);
    const numTokens = golden.promptTokenIds.length;
    const recorded = golden.positions!.map((axis) => axis.slice(0, numTokens));
    // Prompts without pictures keep their positions.
    const places = Array.from({ length: 3 }, () => Array.from({ length: numTokens }, (_, place) => place));
    const { axes, next } = processed.positions ?? { axes: places.flat(), next: numTokens };
    expect([...axes]).toEqual(recorded.flat());
    expect(next).toBe(golden.positions![0]![numTokens]);
    let at = 0;
    for (const [index, { tensors }] of processed.images.entries()) {
      const { data } = tensors.get("pixel_values") as ItemTensor<"float32">;
      const expected = golden.pixelValues!.subarray(at, at + data.length);
      const largest = data.reduce((max, value, element) => Math.max(max, Math.abs(value - expected[element]!)), 0);
      // One step of 255, in units of CLIP's smallest deviation.
      expect(largest).toBeLessThanOrEqual(1 / 255 / 0.26 + 1e-6);
      expect([...(tensors.get("image_grid_thw") as ItemTensor<"int64">).data].map(Number)).toEqual(
        golden.grids![index],
      );
      at += data.length;
    }
    expect(at).toBe(golden.pixelValues?.length ?? 0);
  }
});

test.for([
  [{ size: { min_pixels: 784, max_pixels: 7840 } }, 784, 7840],
  [{ size: { min_pixels: 784, max_pixels: 7840 }, min_pixels: 1568, max_pixels: 3136 }, 1568, 3136],
  [{ size: { min_pixels: 784, max_pixels: 7840, shortest_edge: 1568, longest_edge: 3136 } }, 1568, 3136],
] as const)("%j, as files of transformers 4.45 to 4.48 have it, limits the pixels", ([json, minPixels, maxPixels]) => {
  expect(parseImageOptions(json)).toMatchObject({ minPixels, maxPixels });
});

test.for([{ min_pixels: 784 }, { min_pixels: 784, longest_edge: 7840 }, { shortest_edge: 784, max_pixels: 7840 }])(
  "a size of %j lacks a limit",
  (size) => {
    expect(() => parseImageOptions({ size })).toThrow(/^size\.\w+ is missing/);
  },
);

test("the picture with the most squares reaches the limit of the options", () => {
  const options = parseImageOptions({ min_pixels: 3136, max_pixels: 12845056 });
  const size = largestImageSize(options);
  const { rows, columns } = squareGrid(size, options);
  expect(rows * columns).toBe(16384);
});

test.for([
  ["a small limit", 3136, 12544],
  ["an odd small limit", 3136, 20000],
  ["one size for all pictures", 50_000, 50_000],
  ["a minimum above the maximum", 40_000, 20_000],
  ["a minimum close to the maximum", 45_000, 50_000],
  ["a wide range", 3136, 100_000],
] as const)("no picture has more squares than the one with the most, with %s", ([, min_pixels, max_pixels]) => {
  const options = parseImageOptions({ min_pixels, max_pixels });
  const numSquares = (size: ImageSize): number => {
    const { rows, columns } = squareGrid(size, options);
    return rows * columns;
  };
  let most = 0;
  for (let height = 1; height <= 400; height++) {
    for (let width = height; width <= Math.min(height * 200, 6000); width += width < 700 ? 1 : 7) {
      most = Math.max(most, numSquares({ width, height }));
    }
  }
  expect(numSquares(largestImageSize(options))).toBeGreaterThanOrEqual(most);
});

test("a request can keep its picture whole", async () => {
  await using inputs = await createGoldenInputs("smolvlm");
  const reference = await pictureReference("drawing.png");
  const prompt = {
    kind: "text",
    text: "<image>?",
    addSpecialTokens: false,
    images: [{ type: "image", reference }],
  } as const;
  const request = {
    requestId: "request",
    prompt,
    samplingParams: createSamplingParams(),
    mmProcessorOptions: { do_image_splitting: false },
  };
  const { images } = await inputs.inputProcessor.process(request, never);
  expect(images[0]!.tensors.get("pixel_values")?.shape).toEqual([1, 3, 24, 24]);
  expect(images[0]!.placeholder.isEmbed?.filter(Boolean)).toHaveLength(4);
});

test.for([
  [
    { do_resize: false },
    "invalid_checkpoint",
    "do_resize is false; expected true: this model always resizes pictures.",
  ],
  [{ do_thumbnail: true }, "unsupported_model", "do_thumbnail is not supported."],
] as const)("tiles with %o are rejected: %s", ([options, code, message]) => {
  expect(() => parseTileOptions(options)).toThrow(expect.objectContaining({ code, message }));
});
