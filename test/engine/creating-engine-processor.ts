/** A module that does too much: it creates an engine wherever it is imported, the engine thread included. */
import { isMainThread } from "node:worker_threads";

import { createEngine, LogitsProcessor } from "../../engine/index.ts";

export class Creating extends LogitsProcessor {
  override isArgmaxInvariant(): boolean {
    return true;
  }
  override updateState(): void {}
  override apply(logits: Parameters<LogitsProcessor["apply"]>[0]): typeof logits {
    return logits;
  }
}

// The test's own thread has an engine already.
if (!isMainThread) createEngine();
