import { expect, test } from "vitest";

import { createImageInputs } from "../../engine/input/multimodal-inputs.ts";
import { fuyuDefinition } from "../../engine/models/fuyu/definition.ts";
import { llamaDefinition } from "../../engine/models/llama/definition.ts";
import { llavaDefinition } from "../../engine/models/llava/definition.ts";
import { loadTokenizer } from "../../engine/text/tokenizer.ts";
import { goldensFolder } from "../support/goldens.ts";
import { imageLimits } from "./golden-inputs.ts";
import type { ModelDefinition } from "../../engine/models/model-definition.ts";
import type { MultiModalParts } from "../../engine/input/multimodal-inputs.ts";

const tokenizer = await loadTokenizer(`${goldensFolder}llava-default`);
const preprocessorConfig = { size: { shortest_edge: 32 }, crop_size: 32 };

function parts(definition: ModelDefinition, overrides: Partial<MultiModalParts> = {}): MultiModalParts {
  const visionEncoder = { path: "", inputs: [], imageSize: 32, numImageTokens: 16 };
  const model = { visionEncoder, imageTokenId: 2, contentHash: "", decoder: { hiddenSize: 48 } };
  return { definition, model, tokenizer, preprocessorConfig, imageSources: [], ...overrides };
}

const withoutImages = { visionEncoder: null, imageTokenId: null, contentHash: "", decoder: { hiddenSize: 48 } };

test("a model without a vision encoder takes no images", () => {
  expect(createImageInputs({ imageLimits }, parts(llamaDefinition, { model: withoutImages }))).toBeNull();
});

test("a vision model whose architecture registers no processor is told by its name", () => {
  const { multiModal: _, ...unregistered } = llavaDefinition;
  expect(() => createImageInputs({ imageLimits }, parts(unregistered))).toThrow(
    expect.objectContaining({
      code: "unsupported_model",
      message: "No processor of images is registered for LlavaForConditionalGeneration.",
    }),
  );
});

test("a checkpoint without an image processor's configuration is refused, unless the model has a program of its own", () => {
  const none = { preprocessorConfig: null };
  expect(() => createImageInputs({ imageLimits }, parts(llavaDefinition, none))).toThrow(/no preprocessor_config.json/);
  // Fuyu's program has defaults for all of it; this tokenizer lacks its tokens.
  expect(() => createImageInputs({ imageLimits }, parts(fuyuDefinition, none))).toThrow(/no token \|NEWLINE\|/);
});

test("an image token that the tokenizer does not have is refused by its id", () => {
  const model = { ...parts(llavaDefinition).model, imageTokenId: 99_999 };
  expect(() => createImageInputs({ imageLimits }, parts(llavaDefinition, { model }))).toThrow(
    /no token for the image token id 99999/,
  );
});

test("what the deployment sets of the options is the processor's own, as far as it knows it", async () => {
  const mmProcessorOptions = { do_normalize: false, max_pixels: 3 };
  await using inputs = createImageInputs({ imageLimits, mmProcessorOptions }, parts(llavaDefinition));
  expect(inputs?.processor.options).toEqual({ ...preprocessorConfig, do_normalize: false });
});
