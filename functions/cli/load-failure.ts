/** What the operator is told of a model that cannot be loaded: one line that names what is wrong and what to do. */
import type { EngineErrorCode } from "../../engine/index.ts";
import type { Config } from "../settings/config.ts";

export interface LoadFailure {
  readonly code: string;
  readonly reason: string;
  readonly advice: string;
}

const adviceOf: Partial<Record<EngineErrorCode, string>> = {
  invalid_checkpoint: "Correct the file that is named, or get the checkpoint again.",
  unsupported_model: "Serve a checkpoint of a kind that the README lists.",
  invalid_configuration: "Correct the setting that this is about; --help lists them all.",
  runtime_failed:
    "ONNX Runtime refused this: get the checkpoint again where it is about a file or tensor, look at DEVICE where it is not.",
  device_lost:
    "Start again; where that does not help, look at the GPU: nvidia-smi and the kernel's log name its faults.",
  runtime_missing: "docs/embedding.md has what to set when you install.",
  invalid_logits_processor: "docs/logits-processors.md has the remedy for each reason.",
};

/** Null for a failure that is not the operator's, which is to be shown whole, its stack included. */
export function describeLoadFailure(error: unknown, { engine }: Config): LoadFailure | null {
  // Not by its class: the engine's modules would have to be loaded before the port is open.
  if (!(error instanceof Error) || !("code" in error)) return null;
  const code = error.code as EngineErrorCode;
  const advice = settingAdvice(error, engine) ?? adviceOf[code];
  return advice === undefined ? null : { code, reason: error.message.replaceAll(/\s+/g, " "), advice };
}

function settingAdvice(error: Error, { cacheFolder }: Config["engine"]): string | null {
  switch ("setting" in error ? error.setting : null) {
    case "cacheFolder":
      return `CACHE_FOLDER is ${cacheFolder}: set it to a folder that can be written and has room.`;
    case "maxModelLen":
      return "Set MAX_MODEL_LEN to a length within the limit.";
    case "maxNumBatchedTokens":
      return "Set MAX_NUM_BATCHED_TOKENS to a number within the limit.";
    default:
      return null;
  }
}
