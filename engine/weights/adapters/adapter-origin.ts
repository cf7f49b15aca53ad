/** How errors name an adapter. */
import { EngineError, type LoadingSetting } from "../../contract/errors.ts";

export interface AdapterOrigin {
  /** Begins a sentence: "The LoRA adapter". */
  readonly label: string;
  /** The setting that names it. */
  readonly setting: Extract<LoadingSetting, "loraAdapter" | "loraModules">;
}

export function invalidAdapter({ label, setting }: AdapterOrigin, reason: string, cause?: unknown): EngineError {
  return new EngineError("invalid_checkpoint", `${label} does not fit. ${reason}`, {
    setting,
    ...(cause !== undefined && { cause }),
  });
}
