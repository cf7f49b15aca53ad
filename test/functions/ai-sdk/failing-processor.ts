/** Fails on requests with the argument `fails_after`, once their output has that many tokens. */
import { RequestLogitsProcessorAdapter } from "../../../engine/index.ts";
import type { RequestLogitsProcessor, SamplingParams } from "../../../engine/index.ts";

export class Failing extends RequestLogitsProcessorAdapter {
  static readonly moduleUrl = import.meta.url;

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor({ extraArgs }: SamplingParams): RequestLogitsProcessor | null {
    const limit = extraArgs.fails_after;
    if (typeof limit !== "number") return null;
    return (outputTokenIds: readonly number[], row: Float32Array) => {
      if (outputTokenIds.length >= limit) throw new Error("It was told to fail.");
      return row;
    };
  }
}
