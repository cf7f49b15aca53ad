/**
 * The same as target-token.ts by way of a function that knows one request only: the adapter keeps track of the rows.
 *
 *     LOGITS_PROCESSOR_PATH=examples LOGITS_PROCESSORS=steering.wrapped-target-token:WrappedTargetToken npm start
 */
import { RequestLogitsProcessorAdapter } from "fovea";
import type { RequestLogitsProcessor, SamplingParams } from "fovea";

/** Leaves one token possible. With a third parameter in front, it would also get the prompt's token ids. */
function onlyToken(target: number): RequestLogitsProcessor {
  return (_outputTokenIds: readonly number[], row: Float32Array) => {
    const kept = row[target]!;
    row.fill(Number.NEGATIVE_INFINITY);
    row[target] = kept;
    return row;
  };
}

export class WrappedTargetToken extends RequestLogitsProcessorAdapter {
  override isArgmaxInvariant(): boolean {
    return false;
  }

  /** Null leaves the request unchanged. */
  override newRequestLogitsProcessor({ extraArgs }: SamplingParams): RequestLogitsProcessor | null {
    const target = extraArgs.target_token;
    return typeof target === "number" ? onlyToken(target) : null;
  }
}
