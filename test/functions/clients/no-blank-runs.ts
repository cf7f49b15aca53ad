/**
 * Excludes a second white space after the first. The shipped checkpoint never saw JSON in its training, and would fill
 * every place where a grammar allows white space until its tokens run out.
 */
import { RequestLogitsProcessorAdapter } from "../../../engine/index.ts";
import type { RequestLogitsProcessor } from "../../../engine/index.ts";

/** Ids of the shipped checkpoint's tokenizer. */
const LINE_BREAK = 205;
const SPACE = 227;
const isBlank = (tokenId: number | undefined): boolean => tokenId === LINE_BREAK || tokenId === SPACE;

export class NoBlankRuns extends RequestLogitsProcessorAdapter {
  static readonly moduleUrl = import.meta.url;

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor(): RequestLogitsProcessor {
    return (outputTokenIds: readonly number[], row: Float32Array) => {
      if (!isBlank(outputTokenIds.at(-1))) return row;
      row[LINE_BREAK] = Number.NEGATIVE_INFINITY;
      row[SPACE] = Number.NEGATIVE_INFINITY;
      return row;
    };
  }
}
