/**
 * Keeps the shipped checkpoint's outputs of the length that a test of clients needs. It never saw JSON in its training,
 * and would fill every place where a grammar allows white space: no white space follows another. A request for
 * `ALL_TOKENS` tokens gets them all, so that a client can leave before the end.
 */
import { RequestLogitsProcessorAdapter } from "../../../engine/index.ts";
import type { RequestLogitsProcessor, SamplingParams } from "../../../engine/index.ts";

export const ALL_TOKENS = 1500;
/** Ids of the shipped checkpoint's tokenizer: tab, line feed, carriage return, space. */
const blanks: readonly number[] = [204, 205, 208, 227];
const END_OF_TEXT = 2;

export class ForClients extends RequestLogitsProcessorAdapter {
  static readonly moduleUrl = import.meta.url;

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor({ maxTokens }: SamplingParams): RequestLogitsProcessor {
    return (outputTokenIds: readonly number[], row: Float32Array) => {
      if (maxTokens === ALL_TOKENS) row[END_OF_TEXT] = Number.NEGATIVE_INFINITY;
      const last = outputTokenIds.at(-1);
      if (last === undefined || !blanks.includes(last)) return row;
      for (const blank of blanks) row[blank] = Number.NEGATIVE_INFINITY;
      return row;
    };
  }
}
