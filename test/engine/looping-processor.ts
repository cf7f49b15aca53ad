/**
 * A logits processor that runs until the file exists that a request names as `loops_until`. Only the end of the engine
 * thread can end it.
 */
import { existsSync } from "node:fs";

import { LogitsProcessor } from "../../engine/sampling/contract/logits-processor.ts";
import type { BatchUpdate, Logits } from "../../engine/sampling/contract/logits-processor.ts";

export class Looping extends LogitsProcessor {
  #awaitedFile: string | null = null;

  apply(logits: Logits): Logits {
    const pause = new Int32Array(new SharedArrayBuffer(4));
    while (this.#awaitedFile !== null && !existsSync(this.#awaitedFile)) Atomics.wait(pause, 0, 0, 5);
    this.#awaitedFile = null;
    return logits;
  }

  isArgmaxInvariant(): boolean {
    return false;
  }

  updateState(batchUpdate: BatchUpdate | null): void {
    for (const { params } of batchUpdate?.added ?? []) {
      const { loops_until: file } = params.extraArgs;
      if (typeof file === "string") this.#awaitedFile = file;
    }
  }
}
