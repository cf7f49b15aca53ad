/**
 * Keeps the shipped checkpoint's outputs of the length that a test of clients needs: a request for `ALL_TOKENS` tokens
 * gets them all, and slowly, so that a client can leave before the end on any machine.
 */
import { RequestLogitsProcessorAdapter } from "../../../engine/index.ts";
import type { RequestLogitsProcessor, SamplingParams } from "../../../engine/index.ts";

export const ALL_TOKENS = 1500;
/** Id of the shipped checkpoint's tokenizer. */
const END_OF_TEXT = 2;
const STEP_MS = 25;
const pause = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));

export class ForClients extends RequestLogitsProcessorAdapter {
  static readonly moduleUrl = import.meta.url;

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor({ maxTokens }: SamplingParams): RequestLogitsProcessor | null {
    if (maxTokens !== ALL_TOKENS) return null;
    return (_: readonly number[], row: Float32Array) => {
      Atomics.wait(pause, 0, 0, STEP_MS);
      row[END_OF_TEXT] = Number.NEGATIVE_INFINITY;
      return row;
    };
  }
}
