/** Line breaks around a picture, which join with those of the text as if both were one text. */
import type { ProcessorContext } from "./model-definition.ts";

/** Gemma has tokens for up to so many. */
const MAX_JOINED_LINE_BREAKS = 31;

/** The token of two runs of line breaks side by side; null for other tokens. */
export function lineBreakTokens({ tokenId }: ProcessorContext): (left: number, right: number) => number | null {
  const tokenOf = new Map<number, number>();
  const countOf = new Map<number, number>();
  for (let count = 1; count <= MAX_JOINED_LINE_BREAKS; count++) {
    // The second is how byte-level tokenizers spell them.
    const id = tokenId("\n".repeat(count)) ?? tokenId("\u010a".repeat(count));
    if (id === null) continue;
    tokenOf.set(count, id);
    countOf.set(id, count);
  }
  return (left, right) => {
    const count = (countOf.get(left) ?? Number.NaN) + (countOf.get(right) ?? Number.NaN);
    return tokenOf.get(count) ?? null;
  };
}
