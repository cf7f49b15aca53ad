/** A logits processor that never returns from a native call, like a hanging driver, for requests with `sleeps`. */
import koffi from "koffi";

import { LogitsProcessor } from "../../engine/sampling/contract/logits-processor.ts";
import type { BatchUpdate, Logits } from "../../engine/sampling/contract/logits-processor.ts";

const sleep = koffi.load("libc.so.6").func("unsigned int sleep(unsigned int seconds)");

export class Sleeping extends LogitsProcessor {
  #sleeps = false;

  apply(logits: Logits): Logits {
    if (this.#sleeps) sleep(100_000);
    return logits;
  }

  isArgmaxInvariant(): boolean {
    return false;
  }

  updateState(batchUpdate: BatchUpdate | null): void {
    this.#sleeps ||= batchUpdate?.added.some(({ params }) => params.extraArgs.sleeps === true) === true;
  }
}
