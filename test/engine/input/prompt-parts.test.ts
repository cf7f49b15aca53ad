import * as fc from "fast-check";
import { expect, test } from "vitest";

import type { ContentPart, Prompt } from "../../../engine/contract/generation-request.ts";
import { renderParts, splitPrompt, videosBehindImages } from "../../../engine/input/prompt-parts.ts";
import { noMarkers } from "../../../engine/multimodal/multimodal-processor.ts";
import { pictureReference } from "../../support/checkpoints/goldens.ts";
import { createGoldenInputs } from "./golden-inputs.ts";

const text = (content: string): ContentPart => ({ type: "text", text: content });
const image = (reference: string): ContentPart => ({ type: "image", reference });
const markers = { imageStart: "<Img>", imageEnd: "</Img>" };
const never = new AbortController().signal;

/** As the description of text-generation-webui's multimodal extension prints parts. */
function printed(parts: readonly ContentPart[], around = markers): unknown[] {
  return splitPrompt(parts, around).map((part) => ("image" in part ? part.image.reference : part.text));
}

test("splits text1<image1>text2<image2>text3 as text-generation-webui documents it", () => {
  const parts = [text("text1"), image("<image1>"), text("text2"), image("<image2>"), text("text3")];
  expect(printed(parts, noMarkers)).toEqual(["text1", "<image1>", "text2", "<image2>", "text3"]);
  expect(printed(parts)).toEqual(["text1<Img>", "<image1>", "</Img>text2<Img>", "<image2>", "</Img>text3"]);
});

test("keeps empty texts around images, and joins texts", () => {
  expect(printed([image("1"), image("2")])).toEqual(["<Img>", "1", "</Img><Img>", "2", "</Img>"]);
  expect(printed([text("a"), text("b"), image("1"), text("c"), text("d")])).toEqual(["ab<Img>", "1", "</Img>cd"]);
  expect(printed([text("a")])).toEqual(["a"]);
  expect(printed([])).toEqual([""]);
});

test("a placeholder written in a text is literal", () => {
  const rendered = renderParts([text("<image> is"), image("1"), text("<image>")], "<image>", markers);
  expect(rendered.text).toBe("<image> is<Img><image></Img><image>");
  expect(rendered.literal.map(({ start, end }) => [start, end])).toEqual([
    [0, 7],
    [28, 35],
  ]);
});

test("too many placeholders in the texts are rejected", () => {
  const many = text("<image>".repeat(2 ** 15));
  expect(renderParts([many, image("1"), many], "<image>", markers).literal).toHaveLength(2 ** 16);
  expect(() => renderParts([many, many, text("<image>")], "<image>", markers)).toThrow(
    expect.objectContaining({ code: "invalid_argument", parameter: "prompt" }),
  );
});

const pictures = ["drawing.png", "photo.png", "small.png"];
const piece = fc.oneof(
  fc.constantFrom("What", " is it? ", "\n", "naïve 🙂", "<", "<im", "age>", " <image>", "<s>"),
  fc.string({ maxLength: 6 }),
);
const content = fc.array(fc.oneof(piece, fc.constantFrom(0, 1, 2)), { maxLength: 6 });

test.for(["llava-default", "qwen2-vl", "smolvlm"])(
  "text and images in order have the ids of the same text with placeholders: %s",
  async (name) => {
    await using inputs = await createGoldenInputs(name);
    const { processor } = inputs.imageInputs!;
    const { imageStart, imageEnd } = processor.markers ?? noMarkers;
    const placeholder = processor.imagePlaceholder!;
    const references = await Promise.all(pictures.map(pictureReference));
    const process = (prompt: Prompt) => inputs.inputProcessor.process({ prompt }, never);
    const samePrompts = fc.asyncProperty(content, async (pieces) => {
      const given = pieces.map((part) => (typeof part === "string" ? part.replaceAll(placeholder, "") : part));
      const images = given.filter((part) => typeof part === "number");
      const spelled = given
        .map((part) => (typeof part === "string" ? part : imageStart + placeholder + imageEnd))
        .join("");
      fc.pre(images.length > 0 && images.length <= 3 && spelled.split(placeholder).length === images.length + 1);
      const parts = given.map((part) => (typeof part === "string" ? text(part) : image(references.at(part)!)));
      const inOrder = await process({ kind: "parts", parts, addSpecialTokens: true });
      const withPlaceholders = await process({
        kind: "text",
        text: spelled,
        addSpecialTokens: true,
        images: images.map((index) => ({ type: "image", reference: references.at(index)! })),
      });
      expect(inOrder).toEqual(withPlaceholders);
    });
    await fc.assert(samePrompts, { numRuns: 30 });
  },
);

const video = (reference: string): ContentPart => ({ type: "video", reference });
const withVideos: Prompt = {
  kind: "chat",
  messages: [
    { role: "user", content: [video("a"), text("?"), image("b")] },
    { role: "assistant", content: "No." },
    { role: "user", content: [video("c"), image("d"), text("?")] },
  ],
  addGenerationPrompt: true,
};

test.for([
  ["of-message", [["?", "b", "a"], "No.", ["d", "?", "c"]]],
  ["of-conversation", [["?", "b"], "No.", ["d", "?", "a", "c"]]],
] as const)("moves videos behind the images %s", ([images, expected]) => {
  const moved = videosBehindImages(withVideos, images) as typeof withVideos;
  const contents = moved.kind === "chat" ? moved.messages.map(({ content }) => content) : [];
  const names = contents.map((content) =>
    typeof content === "string"
      ? content
      : content.map((part) => (part.type === "text" ? part.text : "reference" in part ? part.reference : "")),
  );
  expect(names).toEqual(expected);
});
