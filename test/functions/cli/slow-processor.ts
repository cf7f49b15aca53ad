/** A logits processor that takes half a second for each step, so that a process can be ended in the middle of a run. */
import { LogitsProcessor } from "../../../engine/index.ts";
import type { Logits } from "../../../engine/index.ts";

const STEP_MS = 500;
const pause = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));

export class Slow extends LogitsProcessor {
  override isArgmaxInvariant(): boolean {
    return false;
  }

  override updateState(): void {}

  override apply(logits: Logits): Logits {
    Atomics.wait(pause, 0, 0, STEP_MS);
    return logits;
  }
}
