/**
 * A logits processor that ends the engine thread in the middle of a sequence, like a crash in native code: at its third
 * step, and only once the file exists that a request names as `exits_when`.
 */
import { existsSync } from "node:fs";

import type { SamplingParams } from "../../engine/contract/sampling-params.ts";
import { LogitsProcessor } from "../../engine/sampling/contract/logits-processor.ts";
import type { BatchUpdate, Logits } from "../../engine/sampling/contract/logits-processor.ts";

export class Exiting extends LogitsProcessor {
  #numSteps = 0;
  #awaitedFile: string | null = null;

  static override validateParams({ extraArgs }: SamplingParams): void {
    if ("refused" in extraArgs) throw new Error("This request is refused.");
  }

  apply(logits: Logits): Logits {
    this.#numSteps += 1;
    if (this.#numSteps < 3) return logits;
    const pause = new Int32Array(new SharedArrayBuffer(4));
    while (this.#awaitedFile !== null && !existsSync(this.#awaitedFile)) Atomics.wait(pause, 0, 0, 5);
    process.exit(7);
  }

  isArgmaxInvariant(): boolean {
    return false;
  }

  updateState(batchUpdate: BatchUpdate | null): void {
    for (const { params } of batchUpdate?.added ?? []) {
      const { exits_when: file } = params.extraArgs;
      if (typeof file === "string") this.#awaitedFile = file;
    }
  }
}
