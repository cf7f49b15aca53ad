/** Prevents an output from repeating an n-gram, for documents whose model would otherwise loop. */
import type { EngineConfig } from "../../contract/config.ts";
import { noRepeatNgramsOf } from "../../contract/no-repeat-ngram.ts";
import { LogitsProcessor } from "../contract/logits-processor.ts";
import type { BatchUpdate, Logits } from "../contract/logits-processor.ts";
import { RowStates } from "../contract/row-states.ts";
import { NgramIndex } from "./ngram-index.ts";

/**
 * Looks at the output only, like vLLM's `NGramPerReqLogitsProcessor` and MinerU's processor: an n-gram of the prompt
 * may appear in the output.
 */
export class NoRepeatNgramLogitsProcessor extends LogitsProcessor {
  readonly #indexes = new RowStates<readonly NgramIndex[]>();

  constructor(config: EngineConfig) {
    super(config, config.device, {});
  }

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override updateState(batchUpdate: BatchUpdate | null): void {
    this.#indexes.update(batchUpdate, ({ params, outputTokenIds }) => {
      const rules = noRepeatNgramsOf(params.extraArgs);
      return rules.length === 0 ? undefined : rules.map((rule) => new NgramIndex(rule, outputTokenIds));
    });
  }

  override apply(logits: Logits): Logits {
    for (const [rowIndex, indexes] of this.#indexes.entries()) {
      for (const index of indexes) index.excludeRepeats(logits, rowIndex);
    }
    return logits;
  }
}
