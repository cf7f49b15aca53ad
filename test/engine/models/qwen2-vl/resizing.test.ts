/** Pictures in their own sizes, as the processors of GLM, PaddleOCR-VL and HunyuanOCR resize them. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";

import { EngineError } from "../../../../engine/contract/errors.ts";
import type { ImagePart } from "../../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { ProcessedPrompt } from "../../../../engine/input/input-processor.ts";
import { numEmbeddings } from "../../../../engine/models/hunyuan-vl/prompt-positions.ts";
import { largestImageSize, parseImageOptions, squareGrid } from "../../../../engine/models/qwen2-vl/image-options.ts";
import type { Qwen2VlImageOptions } from "../../../../engine/models/qwen2-vl/image-options.ts";
import type { ItemTensor } from "../../../../engine/multimodal/processed-item.ts";
import type { ImageSize } from "../../../../engine/multimodal/processing-info.ts";
import { hubPictureReference } from "../../../support/checkpoints/hub-checkpoints.ts";
import { createHubInputs } from "../../input/golden-inputs.ts";
import type { GoldenInputs } from "../../input/golden-inputs.ts";
import { numpyFile } from "../../multimodal/embedding-files.ts";

interface Recorded {
  readonly grids: readonly {
    readonly width: number;
    readonly height: number;
    readonly size: readonly [shortest: number, longest: number];
    /** Null for a picture that transformers rejects. */
    readonly grid: readonly [rows: number, columns: number] | null;
  }[];
  /** By picture: SHA-256 of the pixel values. */
  readonly pixels: Readonly<Record<string, string>>;
}

const glm = { resizes_like: "glm" };
const paddleOcr = { resizes_like: "paddleocr" };
const hunYuan = { resizes_like: "hunyuan" };
const glmPictures = recordedOf("glm-4.1v");
const paddleOcrPictures = recordedOf("paddleocr-vl");
const hunYuanPictures = recordedOf("hunyuan-ocr");
const never = new AbortController().signal;

function recordedOf(name: string): Recorded {
  const file = new URL(`../../../fixtures/hub/${name}/pictures.json`, import.meta.url);
  return JSON.parse(readFileSync(file, "utf8")) as Recorded;
}

async function process(inputs: GoldenInputs, image: ImagePart): Promise<ProcessedPrompt> {
  const prompt = { kind: "tokens", tokenIds: [inputs.imageInputs!.imageTokenId], images: [image] } as const;
  const request = { requestId: "request", prompt, samplingParams: createSamplingParams() };
  return inputs.inputProcessor.process(request, never);
}

test.for([
  { kind: glm, grids: glmPictures.grids },
  { kind: paddleOcr, grids: paddleOcrPictures.grids },
  { kind: hunYuan, grids: hunYuanPictures.grids },
])("the grids of 200 sizes equal those of transformers: $kind.resizes_like", ({ kind, grids }) => {
  expect(grids).toHaveLength(200);
  for (const { size, grid, ...picture } of grids) {
    const [shortest_edge, longest_edge] = size;
    const options = parseImageOptions({ ...kind, size: { shortest_edge, longest_edge } });
    expect(gridOrNull(picture, options), JSON.stringify({ picture, size })).toEqual(grid);
  }
});

/** Null for a picture that is too elongated. */
function gridOrNull(picture: ImageSize, options: Qwen2VlImageOptions): [rows: number, columns: number] | null {
  try {
    const { rows, columns } = squareGrid(picture, options);
    return [rows, columns];
  } catch (error) {
    if (error instanceof EngineError && error.code === "invalid_image") return null;
    throw error;
  }
}

test.for([
  { kind: glm, shortest_edge: 12544, longest_edge: 47040000 },
  { kind: glm, shortest_edge: 12544, longest_edge: 50176 },
  { kind: glm, shortest_edge: 100_000, longest_edge: 100_000 },
  // A strip of fewer squares than 100 becomes nearly twice as many.
  { kind: { resizes_like: "qwen" }, shortest_edge: 78_400, longest_edge: 117_600 },
  { kind: paddleOcr, shortest_edge: 147_384, longest_edge: 2_822_400 },
  { kind: paddleOcr, shortest_edge: 12544, longest_edge: 50176 },
  { kind: paddleOcr, shortest_edge: 100_000, longest_edge: 100_000 },
])(
  "no picture has more squares than the largest, for $kind.resizes_like from $shortest_edge to $longest_edge",
  ({ kind, shortest_edge, longest_edge }) => {
    const options = parseImageOptions({ ...kind, size: { shortest_edge, longest_edge } });
    const count = (size: ImageSize): number => {
      const { rows, columns } = squareGrid(size, options);
      return rows * columns;
    };
    const most = count(largestImageSize(options));
    let found = 0;
    for (let width = 28; width < 8000; width = Math.ceil(width * 1.07)) {
      const tallest = Math.min(8000, width * 190);
      for (let height = Math.max(Math.ceil(width / 190), 28); height < tallest; height = Math.ceil(height * 1.09)) {
        found = Math.max(found, count({ width, height }));
      }
    }
    expect(found).toBeGreaterThan(0);
    expect(found).toBeLessThanOrEqual(most);
  },
);

test.for([
  { shortest_edge: 262_144, longest_edge: 4_194_304 },
  { shortest_edge: 6144, longest_edge: 40_960 },
  { shortest_edge: 102_400, longest_edge: 153_600 },
  { shortest_edge: 100_000, longest_edge: 100_000 },
])(
  "no picture has more embeddings than the largest where rows end with one: $shortest_edge to $longest_edge",
  (size) => {
    const options = parseImageOptions({ ...hunYuan, size });
    const most = numEmbeddings(squareGrid(largestImageSize(options, numEmbeddings), options));
    let found = 0;
    for (let height = 1; height < 12_000; height = Math.ceil(height * 1.013)) {
      for (
        let width = Math.ceil(height / 200);
        width < 12_000 && width <= 200 * height;
        width = Math.ceil(width * 1.05)
      ) {
        found = Math.max(found, numEmbeddings(squareGrid({ width, height }, options)));
      }
    }
    expect(found).toBeGreaterThan(0);
    expect(found).toBeLessThanOrEqual(most);
  },
);

test("the error for an elongated picture gives its own size, not that of an enlarged one", () => {
  for (const options of [glm, paddleOcr]) {
    const refused = () => squareGrid({ width: 2, height: 500 }, parseImageOptions(options));
    expect(refused).toThrow("The image has 2x500 pixels, an aspect ratio of 250; the limit is 200.");
  }
});

test("HunyuanOCR's pictures are resized by bicubic interpolation whatever the file says", () => {
  expect(parseImageOptions({ ...hunYuan, resample: 1 })).toMatchObject({ resample: "bicubic", squareSize: 32 });
  expect(parseImageOptions({ ...paddleOcr, resample: 1 })).toMatchObject({ resample: "lanczos", squareSize: 28 });
});

test("missing sizes are those of the model's processor, and for GLM Qwen's older names are refused", () => {
  expect(parseImageOptions(glm)).toMatchObject({ minPixels: 6272, maxPixels: 5_880_000 });
  expect(() => parseImageOptions({ ...glm, max_pixels: 5000 })).toThrow("max_pixels is not an option of this model");
  const size = { min_pixels: 784, max_pixels: 7840 };
  expect(() => parseImageOptions({ ...glm, size })).toThrow("min_pixels is not an option of this model");
  expect(parseImageOptions(paddleOcr)).toMatchObject({ minPixels: 147_456, maxPixels: 2_359_296 });
  expect(parseImageOptions({ ...paddleOcr, max_pixels: 5000 })).toMatchObject({ maxPixels: 5000 });
  expect(parseImageOptions({})).toMatchObject({ minPixels: 3136, maxPixels: 1_003_520, resizes_like: "qwen" });
});

describe.for([
  { name: "glm-4.1v", pixels: glmPictures.pixels },
  { name: "glm-ocr", pixels: glmPictures.pixels },
  { name: "paddleocr-vl", pixels: paddleOcrPictures.pixels },
  { name: "hunyuan-ocr", pixels: hunYuanPictures.pixels },
])("$name", ({ name, pixels }) => {
  test("pixel values are bit-identical to those of transformers", async () => {
    await using inputs = await createHubInputs(name);
    const pictures = Object.entries(pixels);
    expect(pictures).toHaveLength(5);
    for (const [picture, hash] of pictures) {
      const { images } = await process(inputs, { type: "image", reference: await hubPictureReference(picture) });
      const { data } = images[0]!.tensors.get("pixel_values") as ItemTensor<"float32">;
      const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
      expect(createHash("sha256").update(bytes).digest("hex"), picture).toBe(hash);
    }
  });

  test("embeddings take the places of their grid, and are refused without one", async () => {
    await using inputs = await createHubInputs(name, { settings: { enableMmEmbeds: true } });
    const numRows = name === "hunyuan-ocr" ? numEmbeddings({ rows: 2, columns: 3 }) : 6;
    const bytes = numpyFile("<f4", [numRows, 64], Buffer.alloc(numRows * 64 * 4));
    const embeddings = { type: "image_embeds", reference: `data:;base64,${bytes.toString("base64")}` } as const;
    const { promptTokenIds } = await process(inputs, { ...embeddings, grid: [1, 4, 6] });
    expect(promptTokenIds).toHaveLength(numRows);
    await expect(process(inputs, embeddings)).rejects.toMatchObject({ code: "invalid_image" });
  });
});
