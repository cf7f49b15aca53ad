/** A logits processor that fails for every sequence. */
import { LogitsProcessor } from "../../engine/sampling/contract/logits-processor.ts";
import type { Logits } from "../../engine/sampling/contract/logits-processor.ts";

export class Failing extends LogitsProcessor {
  static readonly moduleUrl: string = import.meta.url;

  apply(): Logits {
    throw new Error("This processor always fails.");
  }

  isArgmaxInvariant(): boolean {
    return false;
  }

  updateState(): void {}
}
