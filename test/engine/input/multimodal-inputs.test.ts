import { describe, expect, test } from "vitest";

import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import { createDataUrlImageSource } from "../../../engine/images/data-url-image-source.ts";
import { InputProcessor } from "../../../engine/input/input-processor.ts";
import { createImageInputs, loadImageInputs } from "../../../engine/input/multimodal-inputs.ts";
import type { MultiModalParts } from "../../../engine/input/multimodal-inputs.ts";
import { fuyuInputs } from "../../../engine/models/fuyu/processor.ts";
import { llavaInputs } from "../../../engine/models/llava/processor.ts";
import { createDummyInputsBuilder } from "../../../engine/multimodal/dummy-inputs.ts";
import { selectTokenIds } from "../../../engine/multimodal/prompt-update.ts";
import { loadTokenizer } from "../../../engine/text/tokenizer.ts";
import { goldensFolder, pictureReference } from "../../support/checkpoints/goldens.ts";
import { createGoldenInputs, imageLimits } from "./golden-inputs.ts";

const tokenizer = await loadTokenizer(`${goldensFolder}llava-default`);
const neverAborted = new AbortController().signal;
const preprocessorConfig = { size: { shortest_edge: 32 }, crop_size: 32 };

function parts(
  images: MultiModalParts["definition"]["images"],
  overrides: Partial<MultiModalParts> = {},
): MultiModalParts {
  const visionEncoder = { path: "", inputs: [], imageSize: 32, numImageTokens: 16 };
  const model = { visionEncoder, imageTokenId: 2, contentHash: "", decoder: { imageWidth: 48 } };
  const definition = { architecture: "Model", images };
  return { definition, model, tokenizer, preprocessorConfig, imageSources: [], ...overrides };
}

const withoutImages = { visionEncoder: null, imageTokenId: null, contentHash: "", decoder: { imageWidth: 48 } };

test("a model without a vision encoder accepts no images", () => {
  expect(createImageInputs({ imageLimits }, parts(null, { model: withoutImages }))).toBeNull();
});

test("a vision model without a registered processor is reported by its name", () => {
  expect(() => createImageInputs({ imageLimits }, parts(null))).toThrow(
    expect.objectContaining({
      code: "unsupported_model",
      message: "No image processor is registered for Model.",
    }),
  );
});

test("a checkpoint without an image processor's configuration is rejected, unless the model has its own program", () => {
  const none = { preprocessorConfig: null };
  expect(() => createImageInputs({ imageLimits }, parts(llavaInputs, none))).toThrow(/no preprocessor_config.json/);
  // Fuyu's program has defaults for all of it; this tokenizer lacks its tokens.
  expect(() => createImageInputs({ imageLimits }, parts(fuyuInputs, none))).toThrow(/no token \|NEWLINE\|/);
});

test("an image token that the tokenizer lacks is rejected by its id", () => {
  const model = { ...parts(llavaInputs).model, imageTokenId: 99_999 };
  expect(() => createImageInputs({ imageLimits }, parts(llavaInputs, { model }))).toThrow(
    /no token for the image token id 99999/,
  );
});

test("options set by the deployment apply to the processor", async () => {
  const mmProcessorOptions = { do_normalize: false };
  await using inputs = createImageInputs({ imageLimits, mmProcessorOptions }, parts(llavaInputs));
  expect(inputs?.processor.options).toEqual({ ...preprocessorConfig, do_normalize: false });
});

test.for<[string, Record<string, unknown>, string]>([
  [
    "a value that leaves float32",
    { ...preprocessorConfig, rescale_factor: 1e308 },
    "preprocessor_config.json: rescale_factor is 1e+308; expected a number from 0 to 1.",
  ],
  [
    "pictures that the encoder does not take",
    { size: { shortest_edge: 32 } },
    "preprocessor_config.json: crop_size makes pictures of 224x224; the vision encoder expects 32x32.",
  ],
  [
    "a field that is not known",
    { ...preprocessorConfig, do_split: true },
    "preprocessor_config.json: do_split is not supported.",
  ],
])("unsupported options of a checkpoint end the start: %s", ([, config, message]) => {
  const create = () => createImageInputs({ imageLimits }, parts(llavaInputs, { preprocessorConfig: config }));
  expect(create).toThrow(expect.objectContaining({ message }));
});

test("a deployment cannot set options for a model without an image processor", () => {
  const create = () =>
    createImageInputs({ imageLimits, mmProcessorOptions: { size: 32 } }, parts(null, { model: withoutImages }));
  expect(create).toThrow(expect.objectContaining({ code: "invalid_configuration" }));
  expect(create).toThrow(/size cannot be set: this model has no image processor/);
});

describe("unsupported options of the deployment end the start by name", () => {
  test.for<[string, Record<string, unknown>, RegExp]>([
    [
      "a name that the processor does not know",
      { max_pixel: 3 },
      /max_pixel cannot be set; the options of this model's image processor that can be set are/,
    ],
    ["a name that no deployment may set", { image_processor_type: "B" }, /image_processor_type cannot be set;/],
    [
      "a value of the wrong kind",
      { image_mean: "grey" },
      /image_mean is "grey"; expected a number from -255 to 255, or/,
    ],
    ["a value out of range", { resample: 99 }, /resample is 99; expected an integer from 0 to 5/],
    ["a value that leaves float32", { image_std: 1e-300 }, /image_std is 1e-300; expected a number from 0.001 to 255/],
    [
      "pictures that the encoder does not take",
      { crop_size: 16 },
      /pictures of 16x16; the vision encoder expects 32x32/,
    ],
  ])("%s", async ([, mmProcessorOptions, message]) => {
    const loading = loadImageInputs({ imageLimits, mmProcessorOptions }, parts(llavaInputs), neverAborted);
    await expect(loading).rejects.toMatchObject({
      code: "invalid_configuration",
      message: expect.stringMatching(new RegExp(`\\(mm_processor_kwargs\\).*${message.source}`)),
    });
  });

  test("also for a model with its own program", async () => {
    const settings = { mmProcessorOptions: { min_pixels: -1 } };
    await expect(createGoldenInputs("qwen2-vl", { settings })).rejects.toMatchObject({
      code: "invalid_configuration",
      message: expect.stringMatching(/\(mm_processor_kwargs\).*min_pixels/),
    });
  });
});

test("options of the deployment change the predicted input sizes", async () => {
  const settings = { mmProcessorOptions: { max_pixels: 1152 } };
  await using plain = await createGoldenInputs("qwen2-vl");
  await using smaller = await createGoldenInputs("qwen2-vl", { settings });
  // Limits of 16 and 8 squares, which the most elongated picture exceeds: it keeps one row.
  expect(plain.imageInputs?.info.maxTokensPerItem).toBe(Math.floor(Math.sqrt(200 * 16)));
  expect(smaller.imageInputs?.info.maxTokensPerItem).toBe(Math.sqrt(200 * 8));
  const { imageSizes } = smaller.imageInputs!.dummyInputs.build(1);
  expect(imageSizes.map((size) => smaller.imageInputs!.info.numImageTokens(size))).toEqual([40]);
});

test("a model's own dummy inputs take the place of those of its largest picture", async () => {
  const size = { width: 64, height: 32 };
  const images: MultiModalParts["definition"]["images"] = {
    ...llavaInputs,
    createDummyInputs: (info, { imageToken }) =>
      createDummyInputsBuilder(`${imageToken}${info.minTokensPerItem}`, size),
  };
  await using usual = createImageInputs({ imageLimits }, parts(llavaInputs));
  await using own = createImageInputs({ imageLimits }, parts(images));
  expect(usual!.dummyInputs.build(2)).toEqual({
    text: "<image><image>",
    imageSizes: [usual!.info.imageSizeWithMostFeatures, usual!.info.imageSizeWithMostFeatures],
  });
  expect(own!.dummyInputs.build(1)).toEqual({ text: "<image>16", imageSizes: [size] });
});

test("a placeholder may be a different token than its embeddings', which a token prompt may already contain", async () => {
  const [imageToken, pad] = [2, 3];
  const images: MultiModalParts["definition"]["images"] = {
    ...llavaInputs,
    createProcessor: (info, context) => ({
      ...llavaInputs.createProcessor(info, context),
      imagePlaceholder: "<pad>",
      imagePlaceholderTokenIds: [pad],
      promptUpdates: () => [
        {
          mode: "replacement",
          target: [pad],
          content: {
            full: [4, ...Array.from({ length: 16 }, () => imageToken), 5],
            isEmbed: selectTokenIds(imageToken),
          },
        },
      ],
    }),
  };
  await using imageInputs = createImageInputs(
    { imageLimits },
    parts(images, { imageSources: [createDataUrlImageSource()] }),
  );
  const settings = { tokenizer, chatTemplate: null, imageInputs, imageLimits, maxModelLen: 512, vocabSize: 331 };
  const inputProcessor = new InputProcessor(settings);
  const process = async (tokenIds: readonly number[]) => {
    const images = [{ type: "image", reference: await pictureReference("photo.png") } as const];
    const prompt = { kind: "tokens", tokenIds, images } as const;
    const request = { requestId: "request", prompt, samplingParams: createSamplingParams() };
    return inputProcessor.process(request, neverAborted);
  };
  const expanded = await process([70, pad, 71]);
  expect(expanded.promptTokenIds).toEqual([70, 4, ...Array.from({ length: 16 }, () => imageToken), 5, 71]);
  expect(await process(expanded.promptTokenIds)).toEqual(expanded);
  await expect(process([70, 71])).rejects.toThrow(/0 image placeholders \(<pad>\) for 1 images/);
  await expect(process(expanded.promptTokenIds.slice(0, -4))).rejects.toThrow(/0 image placeholders/);
});
