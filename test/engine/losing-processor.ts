/** A logits processor that reports, from the engine thread, what the thread reports when a run finds the GPU gone. */
import { parentPort } from "node:worker_threads";

import { LogitsProcessor } from "../../engine/index.ts";
import type { BatchUpdate, Logits } from "../../engine/index.ts";

export class LosesDevice extends LogitsProcessor {
  isArgmaxInvariant(): boolean {
    return true;
  }

  updateState(batchUpdate: BatchUpdate | null): void {
    if (batchUpdate?.added.some(({ params }) => params.extraArgs.loses === true) !== true) return;
    const message = "CUDA failure 719: unspecified launch failure ; GPU=0 ; expr=cudaStreamSynchronize(stream)";
    parentPort!.postMessage({ kind: "failed", code: "device_lost", message });
  }

  apply(logits: Logits): Logits {
    return logits;
  }
}
