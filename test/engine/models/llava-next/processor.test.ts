import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";

import type { ImagePart } from "../../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { ProcessedPrompt } from "../../../../engine/input/input-processor.ts";
import { anyresLayout, largestAnyresSize, numAnyresEmbeddings } from "../../../../engine/models/llava-next/anyres.ts";
import { parseLlavaNextConfig, parseLlavaOneVisionConfig } from "../../../../engine/models/llava-next/config.ts";
import { anyresImageOptions, parseAnyresOptions } from "../../../../engine/models/llava-next/image-options.ts";
import type { AnyresOptions } from "../../../../engine/models/llava-next/image-options.ts";
import type { ItemTensor } from "../../../../engine/multimodal/processed-item.ts";
import { hubPictureReference } from "../../../support/checkpoints/hub-checkpoints.ts";
import { createHubInputs } from "../../input/golden-inputs.ts";
import type { GoldenInputs, GoldenOverrides } from "../../input/golden-inputs.ts";
import { numpyFile } from "../../multimodal/embedding-files.ts";

interface Recorded {
  readonly sizes: readonly {
    readonly family: "next" | "onevision";
    readonly width: number;
    readonly height: number;
    readonly numTokens: number;
    readonly resolution: readonly [height: number, width: number];
  }[];
  /** By kind and picture: SHA-256 of the pixel values. */
  readonly pixels: Readonly<Record<"llava-next" | "llava-onevision" | "several", Readonly<Record<string, string>>>>;
}

const file = new URL("../../../fixtures/hub/llava-next/pictures.json", import.meta.url);
const recorded = JSON.parse(readFileSync(file, "utf8")) as Recorded;
const never = new AbortController().signal;

/** With the resolutions of the hub's checkpoints. */
const families: Readonly<Record<"next" | "onevision", AnyresOptions>> = {
  next: parseAnyresOptions({
    ...anyresImageOptions(parseLlavaNextConfig({}).anyres),
    size: { shortest_edge: 336 },
    crop_size: 336,
  }),
  onevision: parseAnyresOptions(anyresImageOptions(parseLlavaOneVisionConfig({}).anyres)),
};

async function process(inputs: GoldenInputs, images: readonly ImagePart[]): Promise<ProcessedPrompt> {
  const tokenId = inputs.options.tokenizer.tokenId("<image>");
  if (tokenId === null) throw new Error("no image token");
  const prompt = { kind: "tokens", tokenIds: images.map(() => tokenId), images } as const;
  const request = { requestId: "request", prompt, samplingParams: createSamplingParams() };
  return inputs.inputProcessor.process(request, never);
}

function hashOf(image: ProcessedPrompt["images"][number]): string {
  const { data } = image.tensors.get("pixel_values") as ItemTensor<"float32">;
  return createHash("sha256")
    .update(Buffer.from(data.buffer, data.byteOffset, data.byteLength))
    .digest("hex");
}

test("resolutions and counts of 120 sizes equal those of transformers", () => {
  expect(recorded.sizes).toHaveLength(240);
  for (const { family, numTokens, resolution, ...picture } of recorded.sizes) {
    const options = families[family];
    const layout = anyresLayout(picture, options);
    const about = `${family} ${JSON.stringify(picture)}`;
    expect([layout.canvas.height, layout.canvas.width], about).toEqual(resolution);
    expect(numAnyresEmbeddings(layout, options), about).toBe(numTokens);
  }
});

test.for(["next", "onevision"] as const)("no picture of %s has more embeddings than the largest", (family) => {
  const options = families[family];
  const count = (width: number, height: number): number =>
    numAnyresEmbeddings(anyresLayout({ width, height }, options), options);
  const largest = largestAnyresSize(options);
  const most = count(largest.width, largest.height);
  expect(most).toBe(family === "next" ? 2928 : 8765);
  for (let width = 1; width < 5000; width += 37) {
    for (let height = 1; height < 5000; height += 41) expect(count(width, height)).toBeLessThanOrEqual(most);
  }
});

describe.for(["llava-next", "llava-onevision"] as const)("%s", (name) => {
  test("pixel values are bit-identical to those of transformers", async () => {
    await using inputs = await createHubInputs(name);
    const pictures = Object.entries(recorded.pixels[name]);
    expect(pictures).toHaveLength(5);
    for (const [picture, hash] of pictures) {
      const { images } = await process(inputs, [{ type: "image", reference: await hubPictureReference(picture) }]);
      expect(hashOf(images[0]!), picture).toBe(hash);
    }
  });

  test("embeddings of a request take as many places as there are", async () => {
    await using inputs = await createHubInputs(name, { settings: { enableMmEmbeds: true } });
    const width = name === "llava-next" ? 32 : 64;
    const bytes = numpyFile("<f4", [6, width], Buffer.alloc(6 * width * 4));
    const reference = `data:;base64,${bytes.toString("base64")}`;
    const { promptTokenIds } = await process(inputs, [{ type: "image_embeds", reference }]);
    expect(promptTokenIds).toHaveLength(6);
  });

  test.for<[NonNullable<NonNullable<GoldenOverrides["settings"]>["mmProcessorOptions"]>, string]>([
    [{ image_grid_pinpoints: [[28, 28]] }, "image_grid_pinpoints cannot be set"],
    [{ has_single_tiles: true }, "has_single_tiles cannot be set"],
  ])("options of the model cannot be set: %j", async ([mmProcessorOptions, problem]) => {
    await expect(createHubInputs(name, { settings: { mmProcessorOptions } })).rejects.toThrow(problem);
  });
});

test("several pictures of LLaVA-OneVision have one tile each, which is another item than the picture alone", async () => {
  await using inputs = await createHubInputs("llava-onevision");
  const references = await Promise.all(Object.keys(recorded.pixels.several).map(hubPictureReference));
  const parts = references.map((reference) => ({ type: "image", reference }) as const);
  for (let first = 0; first + 1 < parts.length; first += 2) {
    const { images } = await process(inputs, parts.slice(first, first + 2));
    const expected = Object.values(recorded.pixels.several).slice(first, first + 2);
    expect(images.map(hashOf)).toEqual(expected);
    // Nine patches and the end of a row.
    expect(images.map(({ placeholder }) => placeholder.length)).toEqual([10, 10]);
    const alone = await process(inputs, [parts[first]!]);
    expect(alone.images[0]!.mmHash).not.toBe(images[0]!.mmHash);
  }
});

test.for<[object, string, string]>([
  [{ size: { height: 336, width: 300 }, do_center_crop: false }, "size", "is 336x300; expected a square"],
  [{ size: { shortest_edge: 336 } }, "crop_size", "is 224x224; expected that of size, 336x336"],
  [{ size: { shortest_edge: 200 }, crop_size: 200 }, "image_grid_pinpoints[0]", "is 336x672; expected multiples"],
  [{ size: { shortest_edge: 28 }, crop_size: 28 }, "image_grid_pinpoints[0]", "has 288 tiles; expected at most 144"],
  [{ image_grid_pinpoints: [[336, 336]] }, "image_grid_pinpoints", "differ from those of config.json"],
  [{ aspect_ratio_setting: "pad" }, "aspect_ratio_setting", 'expected "anyres"'],
  [{ do_resize: false }, "do_resize", "always resizes"],
])("refuses %j by its path", ([changes, parameter, problem]) => {
  const checkpoint = { size: { shortest_edge: 336 }, ...anyresImageOptions(parseLlavaNextConfig({}).anyres) };
  const error = (() => {
    try {
      return parseAnyresOptions({
        ...checkpoint,
        ...("image_grid_pinpoints" in changes ? { crop_size: 336 } : {}),
        ...changes,
      });
    } catch (thrown) {
      return thrown;
    }
  })();
  expect(error).toMatchObject({ code: "invalid_checkpoint", parameter });
  expect(String(error)).toContain(problem);
});
