/** A logits processor that waits before a request's third token until the file exists that the request names as `waits_for`. */
import { existsSync } from "node:fs";

import type { SamplingParams } from "../../engine/contract/sampling-params.ts";
import { RequestLogitsProcessorAdapter } from "../../engine/index.ts";

export class Pausing extends RequestLogitsProcessorAdapter {
  isArgmaxInvariant(): boolean {
    return false;
  }

  newRequestLogitsProcessor({ extraArgs: { waits_for: file } }: SamplingParams) {
    if (typeof file !== "string") return null;
    return (outputTokenIds: readonly number[], logits: Float32Array) => {
      const pause = new Int32Array(new SharedArrayBuffer(4));
      while (outputTokenIds.length === 2 && !existsSync(file)) Atomics.wait(pause, 0, 0, 5);
      return logits;
    };
  }
}
