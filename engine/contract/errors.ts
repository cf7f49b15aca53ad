/** The one error class of the engine and its closed list of codes; HTTP statuses are chosen outside. */

export type EngineErrorCode =
  /** A field of the request has a value the engine cannot serve; `parameter` names it. */
  | "invalid_argument"
  | "prompt_too_long"
  | "too_many_images"
  /** The image reference is malformed, of an unknown scheme, or not allowed. */
  | "invalid_image_reference"
  /** The image could not be fetched: refused, not found, timed out, no rights. */
  | "image_unreachable"
  /** More bytes or pixels than the limits allow. */
  | "image_too_large"
  /** The bytes are not a picture the engine decodes. */
  | "invalid_image"
  | "queue_full"
  | "aborted"
  | "not_ready"
  | "closed"
  /** One step of the engine has not ended in the time that `stepTimeoutMs` gives it. */
  | "engine_stalled"
  | "unsupported_model"
  | "invalid_checkpoint"
  | "invalid_configuration"
  /** One that the settings name, or a package announces, does not load or cannot be constructed. */
  | "invalid_logits_processor"
  | "logits_processor_failed"
  | "runtime_failed"
  | "internal";

/** Settings that decide what is served, by their names in `EngineConfig`. */
export type ServingSetting = "maxImagesPerPrompt" | "maxNumWaiting" | "enableMmEmbeds";

/** Settings that decide whether a model loads. */
export type LoadingSetting = "cacheFolder" | "maxModelLen";

export interface EngineErrorOptions {
  readonly cause?: unknown;
  readonly parameter?: string;
  readonly setting?: ServingSetting | LoadingSetting;
}

export class EngineError extends Error {
  override readonly name = "EngineError";
  readonly code: EngineErrorCode;
  /** The request field at fault, in our spelling (`samplingParams.temperature`), where one is. */
  readonly parameter: string | null;
  /** The setting that could be changed so that the engine serves this, or loads, where there is one. */
  readonly setting: ServingSetting | LoadingSetting | null;

  constructor(code: EngineErrorCode, message: string, options: EngineErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.parameter = options.parameter ?? null;
    this.setting = options.setting ?? null;
  }
}

/** Throws an `internal` error when a condition that only a bug of ours can break does not hold. */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new EngineError("internal", `Invariant broken: ${message}`);
}
