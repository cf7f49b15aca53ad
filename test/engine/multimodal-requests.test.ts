import { describe, expect, test } from "vitest";

import { defaultCacheConfig } from "../../engine/contract/default-limits.ts";
import type { GenerationRequest, ImagePart, Prompt } from "../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../engine/contract/sampling-params.ts";
import { createDataUrlImageSource } from "../../engine/images/data-url-image-source.ts";
import type { ImageSource } from "../../engine/images/image-source.ts";
import type { ProcessedPrompt } from "../../engine/input/input-processor.ts";
import { MultiModalCaches } from "../../engine/multimodal/caches/multimodal-caches.ts";
import { pictureReference } from "../support/checkpoints/goldens.ts";
import { createGoldenInputs } from "./input/golden-inputs.ts";
import type { GoldenInputs } from "./input/golden-inputs.ts";
import { numpyFile, safetensorsFile } from "./multimodal/embedding-files.ts";

const never = new AbortController().signal;
const imageTokenId = 2;
const hiddenSize = 48;

type Extras = Omit<GenerationRequest, "requestId" | "prompt" | "samplingParams">;

function process(inputs: GoldenInputs, prompt: Prompt, extras: Extras = {}): Promise<ProcessedPrompt> {
  const request = { requestId: "request", prompt, samplingParams: createSamplingParams(), ...extras };
  return inputs.inputProcessor.process(request, never);
}

function text(value: string, ...images: readonly ImagePart[]): Prompt {
  return { kind: "text", text: value, addSpecialTokens: false, images };
}

function tokens(tokenIds: readonly number[], ...images: readonly ImagePart[]): Prompt {
  return { kind: "tokens", tokenIds, images };
}

const imageTokens = (count: number): number[] => Array.from({ length: count }, () => imageTokenId);

function userSays(...content: readonly (ImagePart | { readonly type: "text"; readonly text: string })[]): Prompt {
  return { kind: "chat", messages: [{ role: "user", content }], addGenerationPrompt: true };
}

const image = async (name: string): Promise<ImagePart> => ({ type: "image", reference: await pictureReference(name) });

function embeds(file: Uint8Array): ImagePart {
  return { type: "image_embeds", reference: `data:;base64,${Buffer.from(file).toString("base64")}` };
}

function rows(numRows: number, width = hiddenSize): Buffer {
  return Buffer.from(Float32Array.from({ length: numRows * width }, (_, index) => index).buffer);
}

describe("token prompts", () => {
  test("that already contain an image's features are not changed", async () => {
    await using inputs = await createGoldenInputs("llava-default");
    const pictures = [await image("drawing.png"), await image("photo.png")];
    const expanded = await process(inputs, text("a <image> b <image> c", ...pictures));
    const again = await process(inputs, tokens(expanded.promptTokenIds, ...pictures));
    expect(again).toEqual(expanded);
  });

  test("with features for only some images, or one place too many, are rejected with the counts", async () => {
    await using inputs = await createGoldenInputs("llava-default");
    const picture = await image("drawing.png");
    const some = [...imageTokens(16), 50, imageTokenId];
    for (const [numTokens, prompt] of [
      [17, tokens(some, picture, picture)],
      [17, tokens(imageTokens(17), picture)],
      [2, tokens([imageTokenId, 50, imageTokenId], picture)],
    ] as const) {
      await expect(process(inputs, prompt)).rejects.toMatchObject({
        code: "invalid_argument",
        message: expect.stringContaining(`${numTokens} image placeholders (<image>) for`),
      });
    }
  });

  test("may have as many adjacent images as an image has features", async () => {
    const imageLimits = { maxImagesPerPrompt: 16, maxImageBytes: 1e6, maxImagePixels: 1e6, fetchTimeoutMs: 5000 };
    await using inputs = await createGoldenInputs("llava-default", { imageLimits, settings: { imageLimits } });
    const picture = await image("small.png");
    const pictures = Array.from({ length: 16 }, () => picture);
    const { promptTokenIds } = await process(inputs, tokens(imageTokens(16), ...pictures));
    expect(promptTokenIds).toHaveLength(256);
  });
});

describe("embeddings", () => {
  const settings = { enableMmEmbeds: true };

  test("take the places of images, one token per row, in every kind of prompt", async () => {
    await using inputs = await createGoldenInputs("llava-default", { settings });
    const [three, five] = [
      embeds(numpyFile("<f4", [3, hiddenSize], rows(3))),
      embeds(safetensorsFile("F32", [5, hiddenSize], rows(5))),
    ];
    const fromText = await process(inputs, text("a <image> b <image>", three, five));
    const { tokenizer } = inputs.options;
    const tokenIds = (await tokenizer.encode("a <image> b <image>", { addSpecialTokens: false })) as number[];
    expect(await process(inputs, tokens(tokenIds, three, five))).toEqual(fromText);
    const fromChat = await process(inputs, userSays(three, { type: "text", text: "?" }, five));
    for (const { promptTokenIds, images } of [fromText, fromChat]) {
      expect(images.map(({ placeholder }) => placeholder.length)).toEqual([3, 5]);
      expect(images.map(({ tensors }) => [...tensors.keys()])).toEqual([["image_embeds"], ["image_embeds"]]);
      expect(images[1]!.tensors.get("image_embeds")?.shape).toEqual([5, hiddenSize]);
      for (const { placeholder } of images) {
        const { offset, length } = placeholder;
        expect(new Set(promptTokenIds.slice(offset, offset + length))).toEqual(new Set([imageTokenId]));
      }
    }
    expect(fromText.images[0]!.mmHash).not.toBe(fromText.images[1]!.mmHash);
  });

  test("are rejected if the server does not accept them, and together with images", async () => {
    const file = embeds(numpyFile("<f4", [3, hiddenSize], rows(3)));
    await using closed = await createGoldenInputs("llava-default");
    await expect(process(closed, text("<image>", file))).rejects.toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining("does not accept image embeddings"),
      parameter: "prompt.images",
    });
    await using open = await createGoldenInputs("llava-default", { settings });
    await expect(process(open, text("<image><image>", file, await image("small.png")))).rejects.toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining("1 image embeddings among its 2 images"),
    });
  });

  test("of another width, or with more rows than an image can have, are rejected with their place in the prompt", async () => {
    await using inputs = await createGoldenInputs("llava-default", { settings });
    const good = embeds(numpyFile("<f4", [3, hiddenSize], rows(3)));
    for (const [file, message] of [
      [numpyFile("<f4", [3, 40], rows(3, 40)), /40 wide .* the model's width is 48/],
      [numpyFile("<f4", [17, hiddenSize], rows(17)), /17 rows; an image of this model has 1 to 16/],
      [Buffer.from("no file"), /neither an .npy nor a safetensors file/],
    ] as const) {
      await expect(process(inputs, text("<image><image>", good, embeds(file)))).rejects.toMatchObject({
        code: "invalid_image",
        parameter: "prompt.images[1]",
        message: expect.stringMatching(message),
      });
    }
  });
});

describe("processor options", () => {
  test("of a request change its pixels and its hash; those without effect change nothing", async () => {
    await using inputs = await createGoldenInputs("llava-default");
    const prompt = text("<image>", await image("photo.png"));
    const [plain] = (await process(inputs, prompt)).images;
    const [raw] = (await process(inputs, prompt, { mmProcessorOptions: { do_normalize: false } })).images;
    const nothing = { use_fast: true, return_tensors: "pt", device: "cuda:0", do_resize: null, images_kwargs: {} };
    const [same] = (await process(inputs, prompt, { mmProcessorOptions: nothing })).images;
    expect(same).toEqual(plain);
    const [nested] = (await process(inputs, prompt, { mmProcessorOptions: { images_kwargs: { do_normalize: false } } }))
      .images;
    expect(nested).toEqual(raw);
    expect(raw!.mmHash).not.toBe(plain!.mmHash);
    const values = raw!.tensors.get("pixel_values")?.data as Float32Array;
    expect(Math.min(...values)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...values)).toBeLessThanOrEqual(1);
    expect(Math.min(...(plain!.tensors.get("pixel_values")?.data as Float32Array))).toBeLessThan(0);
  });

  test("of a deployment can be overridden by a request, and the checkpoint's own value gives the same image", async () => {
    const settings = { mmProcessorOptions: { do_normalize: false } };
    await using set = await createGoldenInputs("llava-default", { settings });
    await using plain = await createGoldenInputs("llava-default");
    const prompt = text("<image>", await image("photo.png"));
    const back = { mmProcessorOptions: { do_normalize: true } };
    const hashes = await Promise.all([
      process(set, prompt),
      process(plain, prompt, settings),
      process(set, prompt, back),
      process(plain, prompt),
    ]);
    const [first, second, third, fourth] = hashes.map(({ images }) => images[0]!.mmHash);
    expect(first).toBe(second);
    expect(third).toBe(fourth);
    expect(first).not.toBe(fourth);
  });

  test.for<[Record<string, unknown>, string, RegExp]>([
    [{ resample: 99 }, "resample", /^resample is 99; expected an integer from 0 to 5\.$/],
    [{ size: { longest: 3 } }, "size", /^size has the fields "longest"; expected height and width, or shortest_edge/],
    [{ crop_size: 16 }, "crop_size", /^crop_size makes pictures of 16x16; the vision encoder expects 32x32\.$/],
    [{ image_mean: () => 0 }, "image_mean", /image_mean is not a JSON value/],
    [{ size: { height: Number.NaN, width: 3 } }, "size.height", /^size\.height is NaN; expected an integer/],
    [{ images_kwargs: { image_std: [1, 0, 1] } }, "images_kwargs.image_std[1]", /^images_kwargs\.image_std\[1\] is 0;/],
    [{ images_kwargs: [1] }, "images_kwargs", /^images_kwargs is a list of 1 element; expected an object of options/],
    [{ resample: 1, images_kwargs: { resample: 1 } }, "images_kwargs.resample", /given twice, also as resample;/],
    [{ use_fast: "yes" }, "use_fast", /^use_fast is "yes"; expected true or false\.$/],
    [{ max_pixels: 3 }, "max_pixels", /^max_pixels cannot be set; the options .* that can be set are do_resize, size,/],
    [{ image_processor_type: "B" }, "image_processor_type", /cannot be set/],
  ])("with invalid values are the request's error: %j", async ([mmProcessorOptions, path, message]) => {
    await using inputs = await createGoldenInputs("llava-default");
    await expect(
      process(inputs, text("<image>", await image("photo.png")), { mmProcessorOptions }),
    ).rejects.toMatchObject({
      code: "invalid_argument",
      parameter: `mmProcessorOptions.${path}`,
      message: expect.stringMatching(message),
    });
  });
});

describe("with caches", () => {
  /** Counts fetches, and confirms unchanged images by a validator. */
  function countingSource(bytes: () => Uint8Array): ImageSource & { readonly answers: string[] } {
    const answers: string[] = [];
    return {
      answers,
      schemes: ["counted"],
      fetch: async () => bytes(),
      fetchIfChanged: async (_, { validator }) => {
        const version = String(bytes()[bytes().length - 1]);
        answers.push(validator === version ? "unchanged" : "fetched");
        return validator === version ? { kind: "unchanged" } : { kind: "fetched", bytes: bytes(), validator: version };
      },
    };
  }

  async function cachedInputs(...sources: readonly ImageSource[]): Promise<GoldenInputs> {
    const caches = new MultiModalCaches(defaultCacheConfig, null);
    return createGoldenInputs("llava-default", { caches, sources: [createDataUrlImageSource(), ...sources] });
  }

  const bytesOf = async (name: string): Promise<Buffer> =>
    Buffer.from((await pictureReference(name)).split(",")[1]!, "base64");

  test("an image is processed once, several in one batch, and a hit returns the same item", async () => {
    await using inputs = await cachedInputs();
    const [drawing, photo] = [await image("drawing.png"), await image("photo.png")];
    const first = await process(inputs, text("<image><image>", drawing, photo));
    const second = await process(inputs, text("x <image><image><image>", photo, drawing, photo));
    expect(second.images[0]!.tensors).toBe(second.images[2]!.tensors);
    expect(second.images.map(({ mmHash }) => mmHash)).toEqual([1, 0, 1].map((index) => first.images[index]!.mmHash));
    expect(second.images[1]!.tensors).toEqual(first.images[0]!.tensors);
  });

  test("an unchanged image is revalidated without a download; a changed one is downloaded", async () => {
    let bytes = await bytesOf("drawing.png");
    const source = countingSource(() => bytes);
    await using inputs = await cachedInputs(source);
    const prompt = text("<image>", { type: "image", reference: "counted:1" });
    const hashOf = async (extras?: Extras) => (await process(inputs, prompt, extras)).images[0]!.mmHash;
    const first = await hashOf();
    expect(await hashOf()).toBe(first);
    expect(source.answers).toEqual(["fetched", "unchanged"]);
    // Other options make another item from the same bytes, which have to be fetched for it.
    await hashOf({ mmProcessorOptions: { do_normalize: false } });
    expect(source.answers.splice(0)).toEqual(["fetched", "unchanged", "fetched"]);
    // Results of another tenant's credentials are not trusted.
    expect(await hashOf({ tenant: "other" })).toBe(first);
    expect(source.answers.splice(0)).toEqual(["fetched"]);
    bytes = Buffer.concat([await bytesOf("photo.png"), Buffer.of(1)]);
    expect(await hashOf()).not.toBe(first);
    expect(source.answers).toEqual(["fetched"]);
  });

  test("an image that changes while its item is evicted is served in the version that was fetched", async () => {
    let bytes = await bytesOf("drawing.png");
    const caches = new MultiModalCaches({ ...defaultCacheConfig, maxMemoryBytes: 50_000 }, null);
    const source = countingSource(() => bytes);
    const ask = source.fetchIfChanged!.bind(source);
    source.fetchIfChanged = async (reference, options) => {
      const answer = await ask(reference, options);
      const large = { elementType: "float32", shape: [12_000], data: new Float32Array(12_000) } as const;
      caches.encoder.setMany([{ key: "large", value: large }]);
      bytes = Buffer.concat([await bytesOf("photo.png"), Buffer.of(1)]);
      return answer;
    };
    await using inputs = await createGoldenInputs("llava-default", { caches, sources: [source] });
    const prompt = text("<image>", { type: "image", reference: "counted:1" });
    const [first] = (await process(inputs, prompt)).images;
    bytes = await bytesOf("drawing.png");
    const [second] = (await process(inputs, prompt)).images;
    expect(second).toEqual(first);
    // Its item is evicted, so nothing could be unchanged.
    const [third] = (await process(inputs, prompt)).images;
    expect(third!.mmHash).not.toBe(first!.mmHash);
    expect(source.answers).toEqual(["fetched", "unchanged", "fetched"]);
  });

  test("a uuid identifies an image of its tenant, and needs neither a reference nor a fetch once cached", async () => {
    const bytes = await bytesOf("drawing.png");
    const source = countingSource(() => bytes);
    await using inputs = await cachedInputs(source);
    const named = (reference: string | null): Prompt => text("<image>", { type: "image", reference, uuid: "cat" });
    const refused = {
      code: "invalid_argument",
      parameter: "prompt.images[0]",
      message: expect.stringContaining("is not cached"),
    };
    await expect(process(inputs, named(null), { tenant: "a" })).rejects.toMatchObject(refused);
    const first = await process(inputs, named("counted:1"), { tenant: "a" });
    expect(await process(inputs, named(null), { tenant: "a" })).toEqual(first);
    expect(await process(inputs, named("counted:2"), { tenant: "a" })).toEqual(first);
    expect(source.answers).toEqual(["fetched"]);
    for (const extras of [{ tenant: "b" }, {}, { tenant: "a", cacheSalt: "s" }]) {
      await expect(process(inputs, named(null), extras)).rejects.toMatchObject(refused);
    }
    const otherOptions = { tenant: "a", mmProcessorOptions: { do_normalize: false } };
    await expect(process(inputs, named(null), otherOptions)).rejects.toMatchObject(refused);
  });

  test("of several images with one uuid, any may bring the image", async () => {
    await using inputs = await cachedInputs();
    const bytes = await pictureReference("drawing.png");
    const named = (reference: string | null): ImagePart => ({ type: "image", reference, uuid: "dog" });
    const { images } = await process(inputs, text("<image><image>", named(null), named(bytes)));
    expect(images[0]!.tensors).toBe(images[1]!.tensors);
  });

  test("a salt separates equal images", async () => {
    await using inputs = await cachedInputs();
    const prompt = text("<image>", await image("small.png"));
    const hashes = await Promise.all(
      [{}, { cacheSalt: "a" }, { cacheSalt: "b" }, { tenant: "x" }].map(
        async (extras) => (await process(inputs, prompt, extras)).images[0]!.mmHash,
      ),
    );
    expect(new Set(hashes).size).toBe(3);
    expect(hashes[0]).toBe(hashes[3]);
  });
});
