/** A module that creates an engine wherever it is imported, even in the engine thread. */
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

// The test's own thread already has an engine.
if (!isMainThread) createEngine();
