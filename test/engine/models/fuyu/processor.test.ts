import { describe, expect, test } from "vitest";

import type { ImagePart, Prompt } from "../../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { ProcessedPrompt } from "../../../../engine/input/input-processor.ts";
import { fuyuPatchGrid, fuyuResizedSize, parseFuyuImageOptions } from "../../../../engine/models/fuyu/image-options.ts";
import type { ProcessorOptions } from "../../../../engine/multimodal/multimodal-processor.ts";
import type { ItemTensor } from "../../../../engine/multimodal/processed-item.ts";
import { loadGoldens, pictureReference } from "../../../support/checkpoints/goldens.ts";
import { createGoldenInputs } from "../../input/golden-inputs.ts";
import type { GoldenInputs } from "../../input/golden-inputs.ts";
import { numpyFile } from "../../multimodal/embedding-files.ts";

const never = new AbortController().signal;
const [beginningOfText, endOfText, imageToken, newline, beginningOfAnswer] = [0, 1, 2, 3, 4];

function process(inputs: GoldenInputs, prompt: Prompt): Promise<ProcessedPrompt> {
  const request = { requestId: "request", prompt, samplingParams: createSamplingParams() };
  return inputs.inputProcessor.process(request, never);
}

const image = async (name: string): Promise<ImagePart> => ({ type: "image", reference: await pictureReference(name) });

test("ids and patches equal those of transformers, for pictures that fit and for larger ones", async () => {
  await using inputs = await createGoldenInputs("fuyu");
  const { cases } = await loadGoldens("fuyu");
  for (const { messages, pictures, promptTokenIds, pixelValues } of cases) {
    const [text] = messages.flatMap(({ content }) =>
      content.flatMap((part) => (part.type === "text" ? [part.text] : [])),
    );
    const images = await Promise.all(pictures.map(image));
    const processed = await process(inputs, { kind: "text", text: text!, addSpecialTokens: false, images });
    expect(processed.promptTokenIds).toEqual(promptTokenIds);
    const [item] = processed.images;
    const patches = item?.tensors.get("image_patches") as ItemTensor<"float32"> | undefined;
    const values = patches?.data ?? new Float32Array();
    expect(values).toHaveLength(pixelValues?.length ?? 0);
    const largest = values.reduce((max, value, at) => Math.max(max, Math.abs(value - pixelValues![at]!)), 0);
    expect(largest).toBeLessThanOrEqual(1e-6);
  }
});

describe("the prompt", () => {
  const picture = image("small.png");

  test("has the image at its start, in place of the tokenizer's own token, and newlines have no embeddings", async () => {
    await using inputs = await createGoldenInputs("fuyu");
    const images = [await picture];
    const layout = [imageToken, imageToken, imageToken, newline];
    const expected = [...layout, ...layout, beginningOfText, 50, 51, beginningOfAnswer];
    for (const tokenIds of [
      [50, 51],
      [endOfText, 50, 51],
      [50, 51, beginningOfAnswer],
    ]) {
      const processed = await process(inputs, { kind: "tokens", tokenIds, images });
      expect(processed.promptTokenIds).toEqual(expected);
      expect(processed.images[0]!.placeholder).toEqual({
        offset: 0,
        length: 9,
        isEmbed: [true, true, true, false, true, true, true, false, false],
      });
    }
  });

  test("has the image at its start, also if its text spells the tokenizer's own token", async () => {
    await using inputs = await createGoldenInputs("fuyu");
    const images = [await picture];
    const text = "a|ENDOFTEXT|b";
    const processed = await process(inputs, { kind: "text", text, addSpecialTokens: true, images });
    expect(processed.images[0]!.placeholder.offset).toBe(0);
    expect(processed.promptTokenIds.slice(9).filter((tokenId) => tokenId === endOfText)).toHaveLength(1);
  });

  test("rejects options of a request that make more embeddings than there is room for", async () => {
    await using inputs = await createGoldenInputs("fuyu");
    const samplingParams = createSamplingParams();
    const mmProcessorOptions = { size: { width: 102, height: 66 } };
    const prompt = { kind: "tokens", tokenIds: [50], images: [await image("drawing.png")] } as const;
    const request = { requestId: "request", prompt, samplingParams, mmProcessorOptions };
    await expect(inputs.inputProcessor.process(request, never)).rejects.toMatchObject({
      code: "invalid_argument",
      parameter: "mmProcessorOptions",
      message: expect.stringMatching(/187 embeddings with the request's options; the engine has room for 80/),
    });
  });

  test("accepts one image, and embeddings only with their grid", async () => {
    await using inputs = await createGoldenInputs("fuyu", { settings: { enableMmEmbeds: true } });
    const images = [await picture, await picture];
    await expect(process(inputs, { kind: "tokens", tokenIds: [50], images })).rejects.toMatchObject({
      code: "too_many_images",
      message: expect.stringMatching(/2 images; the limit is 1, set by this model/),
    });
    const file = numpyFile("<f4", [6, 64], Buffer.alloc(6 * 64 * 4));
    const embeddings = { type: "image_embeds", reference: `data:;base64,${file.toString("base64")}` } as const;
    await expect(process(inputs, { kind: "tokens", tokenIds: [50], images: [embeddings] })).rejects.toMatchObject({
      code: "invalid_image",
    });
  });
});

describe("at the checkpoint's own size of 1920 x 1080 in patches of 30", () => {
  const options = parseFuyuImageOptions({});

  test.for([
    [1920, 1080, 64, 36],
    [1, 1, 1, 1],
    [30, 30, 1, 1],
    [31, 30, 2, 1],
    [30, 31, 1, 2],
    [1921, 1080, 64, 36],
    [1920, 1081, 64, 36],
    [3840, 30, 64, 1],
    [30, 2160, 1, 36],
    [1, 2000, 1, 36],
    [2000, 1, 64, 1],
    [1000, 2000, 18, 36],
    [4000, 3000, 48, 36],
    [640, 480, 22, 16],
  ] as const)("a picture of %i x %i has %i columns and %i rows", ([width, height, numColumns, numRows]) => {
    expect(fuyuPatchGrid({ width, height }, options)).toEqual({ numColumns, numRows });
  });

  test("both directions are scaled by one factor and rounded down", () => {
    expect(fuyuResizedSize({ width: 1921, height: 1080 }, options)).toEqual({ width: 1920, height: 1079 });
    expect(fuyuResizedSize({ width: 1000, height: 2000 }, options)).toEqual({ width: 540, height: 1080 });
  });
});

test("sizes without whole patches, other paddings and values of the wrong type are rejected", () => {
  const parse = (json: ProcessorOptions) => () => parseFuyuImageOptions(json);
  expect(parse({ size: { width: 100, height: 90 } })).toThrow(/^size is 100x90; expected multiples of 30, the side/);
  expect(parse({ patch_size: { width: 30, height: 10 } })).toThrow(/^patch_size is 30x10; expected a square/);
  expect(parse({ padding_mode: "reflect" })).toThrow(/padding_mode/);
  expect(parse({ resample: 9 })).toThrow(/resample/);
  const unscaled = parseFuyuImageOptions({ do_resize: false });
  expect(() => fuyuPatchGrid({ width: 1921, height: 2 }, unscaled)).toThrow(
    /1921x2 pixels; without scaling, the model accepts at most 1920x1080/,
  );
});
