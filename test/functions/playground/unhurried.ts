/** A logits processor that is slow if a request asks for it, so that an answer can be stopped midway. */
import { RequestLogitsProcessorAdapter } from "../../../engine/index.ts";
import type { SamplingParams } from "../../../engine/index.ts";

export class Unhurried extends RequestLogitsProcessorAdapter {
  isArgmaxInvariant() {
    return false;
  }

  newRequestLogitsProcessor({ extraArgs }: SamplingParams) {
    const pauseMs = extraArgs.pause_ms;
    if (typeof pauseMs !== "number") return null;
    return (_outputTokenIds: readonly number[], logits: Float32Array) => {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, pauseMs);
      return logits;
    };
  }
}
