/** Entry of the threads that decode and resample, so that neither ever holds up the HTTP thread. */
import { move, transferableSymbol, valueSymbol } from "piscina";
import { EngineError, type EngineErrorCode } from "../errors.ts";
import { decodeImage } from "./decode-image.ts";
import { toPixelValues, type PixelValues } from "./pixel-values.ts";
import type { PreprocessorPlan } from "./preprocessor-config.ts";

export interface PixelTask {
  /** Encoded picture, owned by the task. */
  readonly bytes: Uint8Array;
  readonly plan: PreprocessorPlan;
  readonly maxImagePixels: number;
  /** One shared number; not 0 once nobody waits for the result. */
  readonly abandoned: Int32Array;
}

/** Errors cross threads as data: a cloned Error loses its class and code. */
export type PixelReply =
  | { readonly kind: "pixels"; readonly result: PixelValues }
  /** `detail` is what the decoder said; for the log, never for the caller. */
  | {
      readonly kind: "refused";
      readonly code: EngineErrorCode;
      readonly message: string;
      readonly detail: string | null;
    }
  | { readonly kind: "abandoned" };

export async function processPixels(task: PixelTask): Promise<PixelReply> {
  try {
    if (Atomics.load(task.abandoned, 0) !== 0) return { kind: "abandoned" };
    const image = await decodeImage(task.bytes, { maxImagePixels: task.maxImagePixels });
    if (Atomics.load(task.abandoned, 0) !== 0) return { kind: "abandoned" };
    const result = toPixelValues(image, task.plan);
    return movingBuffer({ kind: "pixels", result });
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    const detail = error.cause instanceof Error ? error.cause.message : null;
    return { kind: "refused", code: error.code, message: error.message, detail };
  }
}

/** Marks the values' memory to be handed over, not copied; the pool unwraps it. */
function movingBuffer(reply: Extract<PixelReply, { kind: "pixels" }>): PixelReply {
  const marked = { [transferableSymbol]: reply.result.pixelValues.buffer, [valueSymbol]: reply };
  return move(marked) as unknown as PixelReply;
}
