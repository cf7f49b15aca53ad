import { expect, test } from "vitest";

import type { ContentPart, Prompt } from "../../../engine/index.ts";
import { videosBehindImages } from "../../../engine/input/item-parts.ts";

const text = { type: "text", text: "?" } as const;
const video = (reference: string): ContentPart => ({ type: "video", reference });
const image = (reference: string): ContentPart => ({ type: "image", reference });
const prompt: Prompt = {
  kind: "chat",
  messages: [
    { role: "user", content: [video("a"), text, image("b")] },
    { role: "assistant", content: "No." },
    { role: "user", content: [video("c"), image("d"), text] },
  ],
  addGenerationPrompt: true,
};

test.for([
  ["of-message", [["?", "b", "a"], "No.", ["d", "?", "c"]]],
  ["of-conversation", [["?", "b"], "No.", ["d", "?", "a", "c"]]],
] as const)("moves videos behind the images %s", ([images, expected]) => {
  const moved = videosBehindImages(prompt, images) as typeof prompt;
  const contents = moved.kind === "chat" ? moved.messages.map(({ content }) => content) : [];
  const names = contents.map((content) =>
    typeof content === "string"
      ? content
      : content.map((part) => (part.type === "text" ? part.text : "reference" in part ? part.reference : "")),
  );
  expect(names).toEqual(expected);
});
