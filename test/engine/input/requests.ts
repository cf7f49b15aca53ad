/** Requests of tests of the input processor. */
import type { ChatMessage, GenerationRequest, ImagePart, Prompt } from "../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";

export function request(prompt: Prompt): GenerationRequest {
  return { requestId: "request", prompt, samplingParams: createSamplingParams() };
}

export function chat(...messages: ChatMessage[]): GenerationRequest {
  return request({ kind: "chat", messages, addGenerationPrompt: true });
}

export function image(reference: string): ImagePart {
  return { type: "image", reference };
}

/** One message: the images, then the text. */
export function userSays(text: string, ...references: string[]): GenerationRequest {
  return chat({ role: "user", content: [...references.map(image), { type: "text", text }] });
}
