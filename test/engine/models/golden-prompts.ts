/** Recorded conversations as requests, with their pictures. */
import type { GenerationRequest } from "../../../engine/index.ts";
import { pictureReference, type GoldenCase } from "../../support/checkpoints/goldens.ts";

type Prompt = GenerationRequest["prompt"];

export async function chat({ messages, pictures }: GoldenCase): Promise<Prompt> {
  const references = await Promise.all(pictures.map(pictureReference));
  const filled = messages.map(({ role, content }) => ({
    role,
    content: content.map((part) =>
      part.type === "image" ? { type: "image" as const, reference: references.shift()! } : part,
    ),
  }));
  return { kind: "chat", messages: filled, addGenerationPrompt: true };
}

/** For checkpoints without a chat template. */
export async function text({ messages, pictures }: GoldenCase): Promise<Prompt> {
  const words = messages.flatMap(({ content }) => content.map((part) => (part.type === "text" ? part.text : "")));
  const images = pictures.map(
    async (picture) => ({ type: "image", reference: await pictureReference(picture) }) as const,
  );
  return { kind: "text", text: words.join(""), addSpecialTokens: false, images: await Promise.all(images) };
}

/** As the chat template of Qwen2-VL marks pictures. */
export async function qwen2Vl({ messages, pictures }: GoldenCase): Promise<Prompt> {
  const marks = messages.flatMap(({ content }) =>
    content.map((part) => (part.type === "text" ? part.text : "<|vision_start|><|image_pad|><|vision_end|>")),
  );
  const images = pictures.map(
    async (picture) => ({ type: "image", reference: await pictureReference(picture) }) as const,
  );
  return { kind: "text", text: marks.join(""), addSpecialTokens: false, images: await Promise.all(images) };
}
