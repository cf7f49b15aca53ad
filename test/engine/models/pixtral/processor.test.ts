import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";

import type { ImagePart } from "../../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { ProcessedPrompt } from "../../../../engine/input/input-processor.ts";
import { parsePixtralImageOptions, pixtralGrid } from "../../../../engine/models/pixtral/image-options.ts";
import type { ItemTensor } from "../../../../engine/multimodal/processed-item.ts";
import { hubPictureReference } from "../../../support/hub-checkpoints.ts";
import { createHubInputs } from "../../input/golden-inputs.ts";
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
  readonly pixels: Readonly<Record<"pixtral" | "mistral3", Readonly<Record<string, string>>>>;
}

const file = new URL("../../../fixtures/hub/pixtral/pictures.json", import.meta.url);
const recorded = JSON.parse(readFileSync(file, "utf8")) as Recorded;
const never = new AbortController().signal;

async function process(inputs: GoldenInputs, image: ImagePart): Promise<ProcessedPrompt> {
  const { tokenizer } = inputs.options;
  const prompt = { kind: "tokens", tokenIds: [idOf(tokenizer, "[IMG]")], images: [image] } as const;
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
    expect(pixtralGrid(picture, options), JSON.stringify(picture)).toEqual({ rows: grid[0], columns: grid[1] });
  }
});

test("a picture of which scaling leaves no pixel has one row or column", () => {
  const options = parsePixtralImageOptions({});
  expect(pixtralGrid({ width: 1, height: 6000 }, options)).toEqual({ rows: 64, columns: 1 });
  expect(pixtralGrid({ width: 6000, height: 1 }, options)).toEqual({ rows: 1, columns: 64 });
});

describe.for(["pixtral", "mistral3"] as const)("%s", (name) => {
  test("pixel values are bit-identical to those of transformers", async () => {
    await using inputs = await createHubInputs(name);
    const pictures = Object.entries(recorded.pixels[name]);
    expect(pictures).toHaveLength(5);
    for (const [picture, hash] of pictures) {
      const reference = await hubPictureReference(picture);
      const { images } = await process(inputs, { type: "image", reference });
      const { data } = images[0]!.tensors.get("pixel_values") as ItemTensor<"float32">;
      const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
      expect(createHash("sha256").update(bytes).digest("hex"), picture).toBe(hash);
    }
  });

  test("embeddings take the places of their grid, and are refused without one", async () => {
    await using inputs = await createHubInputs(name, { settings: { enableMmEmbeds: true } });
    const mergeSize = name === "pixtral" ? 1 : 2;
    const bytes = numpyFile("<f4", [6, 64], Buffer.alloc(6 * 64 * 4));
    const reference = `data:;base64,${bytes.toString("base64")}`;
    const embeddings = { type: "image_embeds", reference } as const;
    const { promptTokenIds } = await process(inputs, { ...embeddings, grid: [1, 2 * mergeSize, 3 * mergeSize] });
    const [image, rowEnd, imageEnd] = ["[IMG]", "[IMG_BREAK]", "[IMG_END]"].map((token) =>
      idOf(inputs.options.tokenizer, token),
    );
    expect(promptTokenIds).toEqual([image, image, image, rowEnd, image, image, image, imageEnd]);
    await expect(process(inputs, embeddings)).rejects.toMatchObject({ code: "invalid_image" });
  });

  test("the sides of patches are the encoder's and cannot be set", async () => {
    const settings = { mmProcessorOptions: { patch_size: 7 } };
    await expect(createHubInputs(name, { settings })).rejects.toThrow("patch_size cannot be set");
  });
});
