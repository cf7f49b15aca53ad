import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import type { ImagePart } from "../../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { ProcessedPrompt } from "../../../../engine/input/input-processor.ts";
import {
  internGrid,
  largestInternSize,
  numInternTiles,
  parseInternTileOptions,
} from "../../../../engine/models/internvl/tiles.ts";
import type { ItemTensor } from "../../../../engine/multimodal/processed-item.ts";
import { hubPictureReference } from "../../../support/checkpoints/hub-checkpoints.ts";
import { createHubInputs } from "../../input/golden-inputs.ts";
import type { GoldenInputs } from "../../input/golden-inputs.ts";
import { numpyFile } from "../../multimodal/embedding-files.ts";

interface Recorded {
  readonly grids: readonly {
    readonly width: number;
    readonly height: number;
    readonly min: number;
    readonly max: number;
    readonly grid: readonly [rows: number, columns: number];
  }[];
  /** By picture: SHA-256 of the pixel values. */
  readonly pixels: Readonly<Record<string, string>>;
}

const file = new URL("../../../fixtures/hub/internvl3/pictures.json", import.meta.url);
const recorded = JSON.parse(readFileSync(file, "utf8")) as Recorded;
const never = new AbortController().signal;
const tiled = { size: { height: 448, width: 448 }, crop_to_patches: true };

async function process(inputs: GoldenInputs, image: ImagePart, processorOptions = {}): Promise<ProcessedPrompt> {
  const tokenIds = [inputs.imageInputs!.imageTokenId];
  const prompt = { kind: "tokens", tokenIds, images: [image], processorOptions } as const;
  const request = { requestId: "request", prompt, samplingParams: createSamplingParams() };
  return inputs.inputProcessor.process(request, never);
}

test("the grids of 200 sizes equal those of transformers", () => {
  expect(recorded.grids).toHaveLength(200);
  for (const { min, max, grid, ...picture } of recorded.grids) {
    const options = parseInternTileOptions({ ...tiled, min_patches: min, max_patches: max });
    const [rows, columns] = grid;
    expect(internGrid(picture, options), JSON.stringify({ picture, min, max })).toEqual({ rows, columns });
  }
});

test.for([1, 2, 6, 12, 13])("no picture has more tiles than the largest of at most %i", (max) => {
  const options = parseInternTileOptions({ ...tiled, max_patches: max });
  const most = numInternTiles(internGrid(largestInternSize(options), options));
  expect(most).toBe(max === 1 ? 1 : max + 1);
  for (let width = 1; width < 4000; width += 61) {
    for (let height = 1; height < 4000; height += 67) {
      expect(numInternTiles(internGrid({ width, height }, options))).toBeLessThanOrEqual(most);
    }
  }
});

test("pixel values are bit-identical to those of transformers", async () => {
  await using inputs = await createHubInputs("internvl3");
  const pictures = Object.entries(recorded.pixels);
  expect(pictures).toHaveLength(5);
  for (const [picture, hash] of pictures) {
    const { images } = await process(inputs, { type: "image", reference: await hubPictureReference(picture) });
    const { data } = images[0]!.tensors.get("pixel_values") as ItemTensor<"float32">;
    const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    expect(createHash("sha256").update(bytes).digest("hex"), picture).toBe(hash);
  }
});

test("embeddings of a request are whole tiles", async () => {
  await using inputs = await createHubInputs("internvl3", { settings: { enableMmEmbeds: true } });
  const embeddings = (rows: number): ImagePart => {
    const bytes = numpyFile("<f4", [rows, 64], Buffer.alloc(rows * 64 * 4));
    return { type: "image_embeds", reference: `data:;base64,${bytes.toString("base64")}` };
  };
  // Three tiles of four embeddings, between two tokens.
  expect((await process(inputs, embeddings(12))).promptTokenIds).toHaveLength(14);
  await expect(process(inputs, embeddings(6))).rejects.toMatchObject({ code: "invalid_argument" });
});

test("the deployment may show pictures in one tile", async () => {
  const settings = { mmProcessorOptions: { crop_to_patches: false } };
  await using inputs = await createHubInputs("internvl3", { settings });
  const { images } = await process(inputs, { type: "image", reference: await hubPictureReference("strip.png") });
  expect(images[0]!.tensors.get("pixel_values")!.shape).toEqual([1, 3, 28, 28]);
  expect(inputs.imageInputs!.info.maxTokensPerItem).toBe(4);
});

test.for<[object, string, string]>([
  [{ min_patches: 13 }, "min_patches", "is 13; expected at most max_patches, 12"],
  [{ max_patches: 200 }, "max_patches", "expected an integer from 1 to 128"],
  [{ size: { height: 28, width: 56 } }, "size", "is 28x56; expected a square"],
  [{ do_resize: false }, "do_resize", "always resizes"],
])("refuses %j by its path", ([changes, parameter, problem]) => {
  expect(() => parseInternTileOptions({ ...tiled, ...changes })).toThrow(
    expect.objectContaining({
      code: "invalid_checkpoint",
      parameter,
      message: expect.stringContaining(problem),
    }),
  );
});
