/** What an engine that computes embeddings cannot have. */
import type { EngineConfig } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import type { Checkpoint } from "../weights/checkpoint.ts";

/** Throws EngineError `invalid_configuration`. Does nothing for an engine that generates text. */
export function requirePooling(
  { runner = "generate", logitsProcessors, speculativeConfig = null }: EngineConfig,
  { onnxFileNames }: Pick<Checkpoint, "onnxFileNames">,
): void {
  if (runner === "generate") return;
  if (onnxFileNames !== null) {
    throw refusal("An ONNX export has logits only. Use the checkpoint's safetensors");
  }
  if (logitsProcessors.length > 0) {
    throw refusal("Logits processors change text that is generated. Leave them out");
  }
  if (speculativeConfig !== null) {
    throw refusal("Drafts are for text that is generated. Leave them out");
  }
}

function refusal(reason: string): EngineError {
  const message = `The runner is pooling, which computes embeddings. ${reason}.`;
  return new EngineError("invalid_configuration", message, { setting: "runner" });
}
