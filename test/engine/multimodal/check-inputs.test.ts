/** Models whose inputs contradict themselves are rejected at the start, by the field. */
import { expect, test } from "vitest";

import type { MultiModalProcessor } from "../../../engine/multimodal/multimodal-processor.ts";
import type { ProcessingInfo } from "../../../engine/multimodal/processing-info.ts";
import { createGoldenInputs } from "../input/golden-inputs.ts";
import { definitionWith } from "../input/own-processor.ts";

/** As modules in JavaScript have them. */
type Loose<Type> = { readonly [Field in keyof Type]?: unknown };

async function startWith(processor: Loose<MultiModalProcessor>, info: Loose<ProcessingInfo> = {}): Promise<void> {
  const definition = definitionWith(() => processor as Partial<MultiModalProcessor>, info as Partial<ProcessingInfo>);
  await using _inputs = await createGoldenInputs("llava-default", { definition });
}

test.for<[Loose<ProcessingInfo>, string]>([
  [{ supportedLimits: undefined }, "supportedLimits is undefined; expected an object."],
  [{ supportedLimits: { image: Number.NaN } }, "supportedLimits.image is NaN; expected null or an integer from 0 on."],
  [{ supportedLimits: { image: -1 } }, "supportedLimits.image is -1; expected null or an integer from 0 on."],
  [{ maxTokensPerItem: Number.NaN }, "maxTokensPerItem is NaN; expected an integer from 0 on."],
  [
    { imageSizeWithMostFeatures: { width: 0, height: 32 } },
    "imageSizeWithMostFeatures.width is 0; expected an integer from 1 on.",
  ],
  [
    { imageSizeWithMostFeatures: { width: 32, height: 26.5 } },
    "imageSizeWithMostFeatures.height is 26.5; expected an integer from 1 on.",
  ],
  [
    { maxTokensPerItem: 10 },
    "maxTokensPerItem is 10; its numImageTokens counts 16 for imageSizeWithMostFeatures, 32 x 32 pixels.",
  ],
])("the processing info %o is rejected", async ([info, problem]) => {
  await expect(startWith({}, info)).rejects.toMatchObject({
    code: "invalid_configuration",
    message: `The model's ${problem}`,
  });
});

test.for<[Loose<MultiModalProcessor>, string]>([
  [{ imagePlaceholder: "" }, 'imagePlaceholder is ""; expected a text that is not empty, or null for none.'],
  [{ imagePlaceholder: 5 }, "imagePlaceholder is 5; expected a text that is not empty, or null for none."],
  [{ imagePlaceholderTokenIds: undefined }, "imagePlaceholderTokenIds is undefined; expected a list of token ids."],
  [{ imagePlaceholderTokenIds: [null] }, "imagePlaceholderTokenIds is null; expected the id of a token."],
  [
    { imagePlaceholder: null },
    "imagePlaceholderTokenIds is a list of 1 element; expected the tokens of imagePlaceholder, or none if that is null.",
  ],
  [{ requestOptions: ["size"] }, "requestOptions is a list of 1 element; expected a Set of names."],
  [{ options: undefined }, "options is undefined; expected an object."],
  [{ promptUpdates: undefined }, "promptUpdates is undefined; expected a function."],
])("the processor %o is rejected", async ([processor, problem]) => {
  await expect(startWith(processor)).rejects.toMatchObject({
    code: "invalid_configuration",
    message: `The model's ${problem}`,
  });
});
