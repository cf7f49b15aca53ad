/** A logits processor that ends the whole process when a request asks for it, like a crash of native code. */
import { LogitsProcessor } from "../../engine/index.ts";
import type { BatchUpdate, Logits } from "../../engine/index.ts";

export class KillsProcess extends LogitsProcessor {
  isArgmaxInvariant(): boolean {
    return true;
  }

  updateState(batchUpdate: BatchUpdate | null): void {
    if (batchUpdate?.added.some(({ params }) => params.extraArgs.kills === true)) process.kill(process.pid, "SIGKILL");
  }

  apply(logits: Logits): Logits {
    return logits;
  }
}
