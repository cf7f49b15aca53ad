/** Prevents an output from repeating an n-gram, for documents whose model would otherwise loop. */
import { noRepeatNgramsOf } from "../../contract/no-repeat-ngram.ts";
import type { BatchUpdate, Logits } from "../contract/logits-processor.ts";
import { BuiltInLogitsProcessor } from "./built-in-processor.ts";
import { NgramIndex } from "./ngram-index.ts";

/**
 * Looks at the output only, like vLLM's `NGramPerReqLogitsProcessor` and MinerU's processor: an n-gram of the prompt
 * may appear in the output.
 */
export class NoRepeatNgramLogitsProcessor extends BuiltInLogitsProcessor<readonly NgramIndex[]> {
  override updateState(batchUpdate: BatchUpdate | null): void {
    this.rows.update(batchUpdate, ({ params, outputTokenIds }) => {
      const rules = noRepeatNgramsOf(params.extraArgs);
      return rules.length === 0 ? undefined : rules.map((rule) => new NgramIndex(rule, outputTokenIds));
    });
  }

  /** Most outputs repeat nothing. */
  override readsRow(): boolean {
    return false;
  }

  override apply(logits: Logits): Logits {
    for (const [rowIndex, indexes] of this.rows.entries()) {
      for (const index of indexes) index.excludeRepeats(logits, rowIndex);
    }
    return logits;
  }
}
