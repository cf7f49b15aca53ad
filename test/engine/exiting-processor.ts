/** A logits processor that ends the engine thread in the middle of a sequence, as a crash in native code would. */
import { LogitsProcessor } from "../../engine/sampling/logits-processor.ts";
import type { Logits } from "../../engine/sampling/logits-processor.ts";
import type { SamplingParams } from "../../engine/sampling-params.ts";

export class Exiting extends LogitsProcessor {
  #numSteps = 0;

  static override validateParams({ extraArgs }: SamplingParams): void {
    if ("refused" in extraArgs) throw new Error("This request is refused.");
  }

  apply(logits: Logits): Logits {
    this.#numSteps += 1;
    if (this.#numSteps === 3) process.exit(7);
    return logits;
  }

  isArgmaxInvariant(): boolean {
    return false;
  }

  updateState(): void {
    // Keeps nothing about rows.
  }
}
