import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { describe, expect, test } from "vitest";

import type { ImagePart } from "../../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { ProcessedPrompt } from "../../../../engine/input/input-processor.ts";
import { parsePixtralImageOptions, patchGrid, squareGrid } from "../../../../engine/models/pixtral/image-options.ts";
import type { ItemTensor } from "../../../../engine/multimodal/processed-item.ts";
import { goldensFolder } from "../../../support/checkpoints/goldens.ts";
import { hubPictureReference, writeHubCheckpoint } from "../../../support/checkpoints/hub-checkpoints.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import { createGoldenInputs, createHubInputs } from "../../input/golden-inputs.ts";
import type { GoldenInputs } from "../../input/golden-inputs.ts";
import { numpyFile } from "../../multimodal/embedding-files.ts";

interface Recorded {
  readonly grids: readonly {
    readonly width: number;
    readonly height: number;
    readonly size: readonly [height: number, width: number];
    readonly square: number;
    readonly grid: readonly [rows: number, columns: number];
  }[];
  /** By checkpoint and picture: SHA-256 of the pixel values. */
  readonly pixels: Readonly<Record<"pixtral" | "mistral3" | "lighton-ocr", Readonly<Record<string, string>>>>;
}

const file = new URL("../../../fixtures/hub/pixtral/pictures.json", import.meta.url);
const recorded = JSON.parse(readFileSync(file, "utf8")) as Recorded;
const never = new AbortController().signal;

const imageTokens = { pixtral: "[IMG]", mistral3: "[IMG]", "lighton-ocr": "<|image_pad|>" } as const;
type Checkpoint = keyof typeof imageTokens;

async function process(name: Checkpoint, inputs: GoldenInputs, image: ImagePart): Promise<ProcessedPrompt> {
  const { tokenizer } = inputs.options;
  const prompt = { kind: "tokens", tokenIds: [idOf(tokenizer, imageTokens[name])], images: [image] } as const;
  const request = { requestId: "request", prompt, samplingParams: createSamplingParams() };
  return inputs.inputProcessor.process(request, never);
}

function idOf(tokenizer: GoldenInputs["options"]["tokenizer"], token: string): number {
  const id = tokenizer.tokenId(token);
  if (id === null) throw new Error(`no token ${token}`);
  return id;
}

test("the grids of 200 sizes equal those of transformers", () => {
  expect(recorded.grids).toHaveLength(200);
  for (const { size, square, grid, ...picture } of recorded.grids) {
    const [height, width] = size;
    const options = parsePixtralImageOptions({ size: { height, width }, patch_size: square });
    expect(squareGrid(picture, options), JSON.stringify(picture)).toEqual({ rows: grid[0], columns: grid[1] });
  }
});

test("a picture that scaling would reduce to nothing keeps one row or column", () => {
  const options = parsePixtralImageOptions({});
  expect(squareGrid({ width: 1, height: 6000 }, options)).toEqual({ rows: 64, columns: 1 });
  expect(squareGrid({ width: 6000, height: 1 }, options)).toEqual({ rows: 1, columns: 64 });
});

test("LightOnOCR's grids are those of its image processor, and their whole squares become embeddings", () => {
  for (const { size, square: patch, grid, ...picture } of recorded.grids) {
    const [height, width] = size;
    const options = { size: { height, width }, patch_size: patch, spatial_merge_size: 2, rounds_to: "patches" };
    const parsed = parsePixtralImageOptions(options);
    // transformers fails for a picture without a square; here it has one.
    const [rows, columns] = [Math.max(grid[0], 2), Math.max(grid[1], 2)];
    expect(patchGrid(picture, parsed), JSON.stringify(picture)).toEqual({ rows, columns });
    const squares = { rows: Math.floor(rows / 2), columns: Math.floor(columns / 2) };
    expect(squareGrid(picture, parsed)).toEqual(squares);
  }
});

test("LightOnOCR's precomputed embeddings need no grid", async () => {
  await using inputs = await createHubInputs("lighton-ocr", { settings: { enableMmEmbeds: true } });
  const bytes = numpyFile("<f4", [6, 64], Buffer.alloc(6 * 64 * 4));
  const reference = `data:;base64,${bytes.toString("base64")}`;
  const { promptTokenIds } = await process("lighton-ocr", inputs, { type: "image_embeds", reference });
  const imageToken = idOf(inputs.options.tokenizer, imageTokens["lighton-ocr"]);
  expect(promptTokenIds).toEqual(Array.from({ length: 6 }, () => imageToken));
});

test("LightOnOCR's patches have one size, in the image processor and in the encoder", async () => {
  await using folder = await createTemporaryFolder();
  await writeHubCheckpoint("lighton-ocr", "v4", folder.path);
  const file = join(folder.path, "preprocessor_config.json");
  const fields = JSON.parse(await readFile(file, "utf8")) as object;
  await writeFile(file, JSON.stringify({ ...fields, patch_size: 8 }));
  const inputs = createGoldenInputs(relative(goldensFolder, folder.path));
  await expect(inputs).rejects.toThrow("patch_size is 8; the vision encoder's patches have 4 pixels");
});

describe.for(["pixtral", "mistral3", "lighton-ocr"] as const)("%s", (name) => {
  test("pixel values are bit-identical to those of transformers", async () => {
    await using inputs = await createHubInputs(name);
    const pictures = Object.entries(recorded.pixels[name]);
    expect(pictures).toHaveLength(5);
    for (const [picture, hash] of pictures) {
      const reference = await hubPictureReference(picture);
      const { images } = await process(name, inputs, { type: "image", reference });
      const { data } = images[0]!.tensors.get("pixel_values") as ItemTensor<"float32">;
      const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
      expect(createHash("sha256").update(bytes).digest("hex"), picture).toBe(hash);
    }
  });

  test("the sides of patches are the encoder's and cannot be set", async () => {
    const settings = { mmProcessorOptions: { patch_size: 7 } };
    await expect(createHubInputs(name, { settings })).rejects.toThrow("patch_size cannot be set");
  });
});

describe.for(["pixtral", "mistral3"] as const)("%s", (name) => {
  test("embeddings take the places of their grid, and are refused without one", async () => {
    await using inputs = await createHubInputs(name, { settings: { enableMmEmbeds: true } });
    const mergeSize = name === "pixtral" ? 1 : 2;
    const bytes = numpyFile("<f4", [6, 64], Buffer.alloc(6 * 64 * 4));
    const reference = `data:;base64,${bytes.toString("base64")}`;
    const embeddings = { type: "image_embeds", reference } as const;
    const { promptTokenIds } = await process(name, inputs, { ...embeddings, grid: [1, 2 * mergeSize, 3 * mergeSize] });
    const [image, rowEnd, imageEnd] = ["[IMG]", "[IMG_BREAK]", "[IMG_END]"].map((token) =>
      idOf(inputs.options.tokenizer, token),
    );
    expect(promptTokenIds).toEqual([image, image, image, rowEnd, image, image, image, imageEnd]);
    await expect(process(name, inputs, embeddings)).rejects.toMatchObject({ code: "invalid_image" });
  });
});
