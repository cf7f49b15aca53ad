/** Describes why a model cannot be loaded: one line that names the fault and what to do. */
import type { EngineErrorCode } from "../../engine/index.ts";
import type { Config } from "../settings/config.ts";

export interface LoadFailure {
  readonly code: string;
  readonly reason: string;
  readonly advice: string;
}

const adviceOf: Partial<Record<EngineErrorCode, string>> = {
  invalid_checkpoint: "Correct the file that the reason names, or download the checkpoint again.",
  unsupported_model: "Use a checkpoint of a kind that the README lists.",
  invalid_configuration: "Correct the setting that the reason names; fovea --help lists all settings.",
  runtime_failed:
    "ONNX Runtime rejected this. Download the checkpoint again if the reason is about a file or tensor, otherwise check DEVICE.",
  out_of_memory:
    "Choose a smaller model or DTYPE, or a lower MAX_MODEL_LEN, MAX_NUM_SEQS or MAX_NUM_BATCHED_TOKENS; end other programs that use the device.",
  device_lost: "Restart. If that does not help, check the GPU: nvidia-smi and the kernel's log name its faults.",
  runtime_missing: "docs/embedding.md says which variable to set for the installation.",
  invalid_logits_processor: "docs/logits-processors.md lists the fix for each reason.",
};

/** Null for a failure that the operator cannot fix; it is shown in full, with its stack. */
export function describeLoadFailure(error: unknown, { engine }: Config): LoadFailure | null {
  // Without its class: importing the engine's modules would delay opening the port.
  if (!(error instanceof Error) || !("code" in error)) return null;
  const code = error.code as EngineErrorCode;
  const advice = settingAdvice(error, engine) ?? adviceOf[code];
  return advice === undefined ? null : { code, reason: error.message.replaceAll(/\s+/g, " "), advice };
}

function settingAdvice(error: Error, { cacheFolder, hub }: Config["engine"]): string | null {
  switch ("setting" in error ? error.setting : null) {
    case "cacheFolder":
      return `CACHE_FOLDER is ${cacheFolder}: set it to a writable folder with enough free space.`;
    case "hubCacheFolder":
      return `HF_HUB_CACHE is ${hub.cacheFolder}: set it to a folder that has the repository, or that is writable and has enough free space.`;
    case "maxModelLen":
      return "Set MAX_MODEL_LEN to a length within the limit.";
    case "maxNumBatchedTokens":
      return "Set MAX_NUM_BATCHED_TOKENS to a number within the limit.";
    default:
      return null;
  }
}
