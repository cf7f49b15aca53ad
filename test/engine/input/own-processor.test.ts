/** Requests to models whose processors are wrong: the errors blame the model, and name its function. */
import { expect, test } from "vitest";

import type { ModelDefinition } from "../../../engine/models/model-definition.ts";
import { pictureReference } from "../../support/checkpoints/goldens.ts";
import { createGoldenInputs } from "./golden-inputs.ts";
import { definitionWith } from "./own-processor.ts";
import { userSays } from "./requests.ts";

const { signal } = new AbortController();

test.for<[string, ModelDefinition, object]>([
  [
    "that takes no images",
    definitionWith(() => ({}), { supportedLimits: {} }),
    {
      code: "too_many_images",
      setting: null,
      message: "The prompt has 1 images; the limit is 0, set by this model.",
    },
  ],
  [
    "that counts no number of embeddings",
    definitionWith(() => ({ numImageTokens: () => Number.NaN })),
    {
      code: "internal",
      message: expect.stringMatching(
        /^The model's numImageTokens returned NaN for an image of \d+ x \d+ pixels; expected the number of/,
      ),
    },
  ],
  [
    "that counts more embeddings than it has at most",
    definitionWith(() => ({ numImageTokens: () => 17 })),
    {
      code: "internal",
      parameter: null,
      message: "An image has 17 embeddings with the model's own options; its maxTokensPerItem is 16.",
    },
  ],
  [
    "whose positions have no end",
    definitionWith(() => ({
      promptPositions: (numTokens) => ({ axes: new Int32Array(3 * numTokens), next: Number.NaN }),
    })),
    {
      code: "internal",
      message: expect.stringMatching(
        /^The model's promptPositions returned \d+ positions as axes, and NaN as next, for/,
      ),
    },
  ],
  [
    "whose positions are too few",
    definitionWith(() => ({ promptPositions: () => ({ axes: new Int32Array(3), next: 5 }) })),
    {
      code: "internal",
      message: expect.stringMatching(/^The model's promptPositions returned 3 positions as axes, and 5 as next, for/),
    },
  ],
  [
    "whose program makes no pixels",
    definitionWith(() => ({}), {}, "export const toTensors = () => new Map();"),
    { code: "internal", message: "The pixel program made no tensor pixel_values; it made none." },
  ],
])("a model %s is told apart from a wrong request", async ([, definition, rejection]) => {
  await using inputs = await createGoldenInputs("llava-default", { definition });
  const request = userSays("What is it?", await pictureReference("photo.png"));
  await expect(inputs.inputProcessor.process(request, signal)).rejects.toMatchObject(rejection);
});
