/**
 * Keeps the shipped checkpoint's outputs of the length that a test of clients needs: a request for `ALL_TOKENS` tokens
 * gets them all, so that a client can leave before the end.
 */
import { RequestLogitsProcessorAdapter } from "../../../engine/index.ts";
import type { RequestLogitsProcessor, SamplingParams } from "../../../engine/index.ts";

export const ALL_TOKENS = 1500;
/** Id of the shipped checkpoint's tokenizer. */
const END_OF_TEXT = 2;

export class ForClients extends RequestLogitsProcessorAdapter {
  static readonly moduleUrl = import.meta.url;

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor({ maxTokens }: SamplingParams): RequestLogitsProcessor | null {
    if (maxTokens !== ALL_TOKENS) return null;
    return (_: readonly number[], row: Float32Array) => {
      row[END_OF_TEXT] = Number.NEGATIVE_INFINITY;
      return row;
    };
  }
}
