/** A short prompt, so that the first request finds the chat template and the tokenizer compiled. */
import type { Prompt } from "../contract/generation-request.ts";
import type { InputProcessor } from "./input-processor.ts";

const text = "What is this?";

/** Never rejects: a template may refuse the messages. */
export async function warmUpPrompt(
  inputProcessor: InputProcessor,
  hasChatTemplate: boolean,
  signal: AbortSignal,
): Promise<void> {
  const prompt: Prompt = hasChatTemplate
    ? { kind: "chat", messages: [{ role: "user", content: [{ type: "text", text }] }], addGenerationPrompt: true }
    : { kind: "text", text, addSpecialTokens: true };
  await inputProcessor.process({ prompt }, signal).catch(() => {});
}
