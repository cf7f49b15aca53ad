import { expect, test } from "vitest";

import { pictureReference } from "../../support/checkpoints/goldens.ts";
import { createGoldenInputs } from "./golden-inputs.ts";
import { image, request } from "./requests.ts";

const never = new AbortController().signal;

test("a text prompt and a token prompt take images at their placeholders", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  const picture = await pictureReference("drawing.png");
  const { tokenizer } = inputs.options;
  const text = "One: <image> two: <image>.";
  const images = [image(picture), image(picture)];
  const fromText = await inputs.inputProcessor.process(
    request({ kind: "text", text, addSpecialTokens: false, images }),
    never,
  );
  expect(fromText.images.map(({ placeholder }) => placeholder.length)).toEqual([16, 16]);
  const tokenIds = (await tokenizer.encode(text, { addSpecialTokens: false })) as number[];
  const fromTokens = await inputs.inputProcessor.process(request({ kind: "tokens", tokenIds, images }), never);
  expect(fromTokens.promptTokenIds).toEqual(fromText.promptTokenIds);
  // The placeholder's characters instead of its token.
  const literal = [{ start: 5, end: 12 }];
  const spelled = (await tokenizer.encode(text, { addSpecialTokens: false, literal })) as number[];
  const fromSpelled = await inputs.inputProcessor.process(
    request({ kind: "tokens", tokenIds: spelled, images }),
    never,
  );
  expect(fromSpelled.promptTokenIds).toEqual(fromText.promptTokenIds);
});
