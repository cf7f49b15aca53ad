/** Prompt updates with tokens that the engine cannot compute: only the request fails, by name. */
import { expect, test } from "vitest";

import { createLargestImage } from "../../../engine/input/dummy-images.ts";
import { selectTokenIds } from "../../../engine/multimodal/prompt-update.ts";
import { pictureReference } from "../../support/checkpoints/goldens.ts";
import { createGoldenInputs } from "./golden-inputs.ts";
import { definitionWith } from "./own-processor.ts";
import { userSays } from "./requests.ts";

const { signal } = new AbortController();
const imageTokenId = 2;
const features = Array.from({ length: 16 }, () => imageTokenId);

test.for<[string, number]>([
  // As JavaScript passes on what `tokenId` returns for a text without a token.
  ["null", null as unknown as number],
  ["NaN", Number.NaN],
  ["7.5", 7.5],
  ["-5", -5],
  ["99999", 99_999],
])("the token id %s in a content or number is rejected, also before the first request", async ([shown, tokenId]) => {
  const full = [...features, tokenId];
  const contents = definitionWith(() => ({
    promptUpdates: () => [
      { mode: "replacement", target: [imageTokenId], content: { full, isEmbed: selectTokenIds(imageTokenId) } },
    ],
  }));
  const numbers = definitionWith(() => ({ numberTokens: (index) => (index === 0 ? [3] : [3, tokenId]) }));
  const picture = await pictureReference("photo.png");
  const rejection = (member: string) => ({
    code: "internal",
    message: `The model's ${member} puts the token id ${shown} into prompts, which is outside the vocabulary, whose size is 331.`,
  });

  await using ofContents = await createGoldenInputs("llava-default", { definition: contents });
  const request = userSays("What is it?", picture, picture);
  await expect(ofContents.inputProcessor.process(request, signal)).rejects.toMatchObject(rejection("promptUpdates"));
  const start = createLargestImage(ofContents.imageInputs!, { ...ofContents.options, expected: undefined }, signal);
  await expect(start).rejects.toMatchObject(rejection("promptUpdates"));

  await using ofNumbers = await createGoldenInputs("llava-default", { definition: numbers });
  await expect(ofNumbers.inputProcessor.process(request, signal)).rejects.toMatchObject(rejection("numberTokens"));
  const one = await ofNumbers.inputProcessor.process(userSays("What is it?", picture), signal);
  expect(one.images).toHaveLength(1);
});
