/** Widths that follow from a layer's heads. */
import { invariant } from "../../contract/errors.ts";
import type { CachedAttention, Rotary } from "./decoder-inputs.ts";

/** Features of a token's query, key and value. */
export function headWidths({
  numHeads,
  numKvHeads,
  headDim,
}: CachedAttention): readonly [query: number, key: number, value: number] {
  return [numHeads * headDim, numKvHeads * headDim, numKvHeads * headDim];
}

/** Dimensions of each head that are rotated. */
export function rotaryDimOf({ tables: { cosCache } }: Rotary): number {
  const half = cosCache.shape[1];
  invariant(typeof half === "number", "the width of rotary tables is known");
  return 2 * half;
}
