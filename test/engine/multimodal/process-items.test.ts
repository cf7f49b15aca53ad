/** Processors that disagree with themselves or fail: their model's author reads why. */
import { expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import type { MultiModalProcessor } from "../../../engine/multimodal/multimodal-processor.ts";
import { withNamedErrors } from "../../../engine/multimodal/named-errors.ts";
import { processImages, toEmbeddingItems } from "../../../engine/multimodal/process-items.ts";
import { selectTokenIds } from "../../../engine/multimodal/prompt-update.ts";
import type { PromptUpdate } from "../../../engine/multimodal/prompt-update.ts";

const imageTokenId = 7;
const rowEnd = 8;
const imageSize = { width: 20, height: 30 };
const pixelValues = { elementType: "float32", shape: [2], data: new Float32Array(2) } as const;
const images = [{ bytes: new Uint8Array(), parameter: "prompt.images[0]" }];
const promptText = { encode: async () => [], decode: () => "" };
const settings = { options: {}, promptText, signal: new AbortController().signal };

/** As a model's author writes it: each image has `numImageTokens` embeddings. */
function processorWith(numImageTokens: number, ...contents: PromptUpdate["content"][]): MultiModalProcessor {
  return {
    imagePlaceholder: "<image>",
    imagePlaceholderTokenIds: [imageTokenId],
    options: {},
    requestOptions: new Set(),
    checkOptions() {},
    numImageTokens: () => numImageTokens,
    processImages: async () => ({ fields: new Map([["pixel_values", [pixelValues]]]), imageSizes: [imageSize] }),
    fieldConfigs: () => ({ pixel_values: { kind: "batched" } }),
    promptUpdates: () => contents.map((content) => ({ mode: "replacement", target: [imageTokenId], content })),
  };
}

const twoRows = [imageTokenId, imageTokenId, rowEnd, imageTokenId, imageTokenId, rowEnd];
const masked = { full: twoRows, isEmbed: selectTokenIds(imageTokenId) };

test("an image whose places are as many as its embeddings is processed", async () => {
  const [item] = await processImages(processorWith(4, masked), images, settings);
  expect(item!.promptUpdates[0]!.content.full).toEqual(twoRows);
});

test.for<[string, number, PromptUpdate["content"][], number]>([
  ["counts tokens without an embedding", 4, [twoRows], 6],
  ["leaves a row out", 4, [[imageTokenId, imageTokenId]], 2],
  ["has an alternative of another length", 4, [masked, [imageTokenId]], 1],
])("an update that %s is rejected with both numbers", async ([, numImageTokens, contents, numPlaces]) => {
  await expect(processImages(processorWith(numImageTokens, ...contents), images, settings)).rejects.toMatchObject({
    code: "internal",
    message:
      `The model's promptUpdates have places for ${numPlaces} embeddings of an image of 20 x 30 pixels; ` +
      `its numImageTokens counts ${numImageTokens}.`,
  });
});

test("embeddings of a request are rejected if the model has another number of places for them", async () => {
  const given = (numRows: number) => ({
    embeddings: { elementType: "float32", shape: [numRows, 2], data: new Float32Array(2 * numRows) } as const,
    grid: null,
  });
  const processor = processorWith(4, masked);
  await expect(toEmbeddingItems(processor, [given(4)], settings)).resolves.toHaveLength(1);
  await expect(toEmbeddingItems(processor, [given(4), given(3)], settings)).rejects.toMatchObject({
    code: "invalid_image",
    parameter: "prompt.images[1]",
    message: "The image embeddings have 3 rows; the model has 4 places for them in the prompt.",
  });
});

test.for<[string, unknown, string]>([
  ["nothing", undefined, "promptUpdates returned undefined; expected a list of at least one rule."],
  ["no rule", [], "promptUpdates returned a list of 0 elements; expected a list of at least one rule."],
  [
    "an unknown mode",
    [{ mode: "replace", target: [7], content: masked }],
    'promptUpdates has a rule with the mode "replace"; expected "replacement" or "insertion".',
  ],
  [
    "no target",
    [{ mode: "replacement", content: masked }],
    "promptUpdates has a rule with the target undefined; expected token ids, a text or one of promptIndexTargets.",
  ],
  [
    "no content",
    [{ mode: "replacement", target: [7], content: null }],
    "promptUpdates has a rule with the content null; expected token ids, a text or an object whose full is one of them.",
  ],
  [
    "a content that fails",
    [{ mode: "replacement", target: [7], content: { full: [7], isEmbed: () => JSON.parse("") } }],
    "promptUpdates failed: Unexpected end of JSON input.",
  ],
])("prompt updates with %s are rejected by name", async ([, updates, message]) => {
  const processor = { ...processorWith(4), promptUpdates: () => updates as readonly PromptUpdate[] };
  await expect(processImages(processor, images, settings)).rejects.toMatchObject({
    code: "internal",
    message: `The model's ${message}`,
  });
});

test("a processor that returns no batch is rejected by name", async () => {
  const processImagesWrongly = (async () => undefined) as unknown as MultiModalProcessor["processImages"];
  const processor = { ...processorWith(4, masked), processImages: processImagesWrongly };
  await expect(processImages(processor, images, settings)).rejects.toMatchObject({
    code: "internal",
    message:
      "The model's processImages returned undefined; expected an object with a Map of fields and a list of imageSizes.",
  });
});

test("errors of a processor's own code name its function, and those of the engine stay as they are", async () => {
  class Own {
    readonly options = {};
    readonly #reason = "no such tile";
    numImageTokens(): number {
      throw new TypeError(this.#reason);
    }
    async processImages(): Promise<never> {
      throw new RangeError(this.#reason);
    }
    checkOptions(): void {
      throw new EngineError("unsupported_model", "resample is 9.");
    }
  }
  const own = new Own();
  const processor = withNamedErrors(own as unknown as MultiModalProcessor);
  expect(processor.options).toBe(own.options);
  expect(() => processor.numImageTokens(imageSize, {})).toThrow(
    expect.objectContaining({ code: "internal", message: "The model's numImageTokens failed: no such tile." }),
  );
  await expect(processor.processImages([], {}, settings.signal)).rejects.toMatchObject({
    code: "internal",
    message: "The model's processImages failed: no such tile.",
    cause: expect.any(RangeError),
  });
  expect(() => processor.checkOptions({})).toThrow(expect.objectContaining({ code: "unsupported_model" }));
});

test("embeddings that a model's contents exclude are named", async () => {
  const content = (index: number): readonly number[] => {
    if (index === 1) throw new EngineError("invalid_argument", "This model has 4 embeddings for a picture; got 3.");
    return [imageTokenId];
  };
  const given = {
    embeddings: { elementType: "float32", shape: [1, 2], data: new Float32Array(2) } as const,
    grid: null,
  };
  await expect(toEmbeddingItems(processorWith(1, content), [given, given], settings)).rejects.toMatchObject({
    code: "invalid_argument",
    parameter: "prompt.images[1]",
  });
});
