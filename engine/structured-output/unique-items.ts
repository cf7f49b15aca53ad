/** Lists of different values, of which there are few. */
import { alternativesOf, literalOf, sequenceOf } from "./expression.ts";
import type { Expression } from "./expression.ts";
import type { CountBounds } from "./json-bounds.ts";
import { comma, constantOf } from "./json-text.ts";
import { keyOf } from "./schema-constants.ts";

/** Maximum number of values in all places of all lists of a schema. This many take some tens of milliseconds. */
export const MAX_UNIQUE_PLACES = 20_000;

export type UniqueItems =
  | { readonly kind: "none" }
  | { readonly kind: "too-large" }
  /** `canBeEmpty`: the list may also have no items, which the expression does not match. */
  | { readonly kind: "some"; readonly expression: Expression; readonly numPlaces: number };

/**
 * All orders of the values, each at most once, separated by commas: at least one value, and as many as the bounds say.
 * There is one expression for each set of values that may still follow, so eleven values are possible without bounds, or
 * three of thirty.
 */
export function uniqueItems(given: readonly unknown[], { min, max }: CountBounds, maxPlaces: number): UniqueItems {
  const values = Array.from(new Map(given.map((value) => [keyOf(value), constantOf(value)])).values());
  const most = Math.min(max, values.length);
  if (most === 0 || min > values.length) return { kind: "none" };
  if (numPlacesOf(values.length, most, maxPlaces) > maxPlaces) return { kind: "too-large" };
  const written = new Map<string, Expression>();
  let numPlaces = 0;
  /** The values after those that are taken, which are in ascending order. */
  const restOf = (taken: readonly number[]): Expression => {
    const key = taken.join();
    let rest = written.get(key);
    if (rest === undefined) written.set(key, (rest = writeRest(taken)));
    return rest;
  };
  const writeRest = (taken: readonly number[]): Expression => {
    if (taken.length === most) return literalOf("");
    const options: Expression[] = [];
    for (const [index, value] of values.entries()) {
      if (taken.includes(index)) continue;
      numPlaces++;
      const next = [...taken, index].sort((left, right) => left - right);
      options.push(sequenceOf([...(taken.length === 0 ? [] : [comma]), literalOf(value), restOf(next)]));
    }
    const following = alternativesOf(options);
    const canEnd = taken.length > 0 && taken.length >= min;
    return canEnd ? { kind: "repetition", part: following, min: 0, max: 1 } : following;
  };
  const expression = restOf([]);
  return { kind: "some", expression, numPlaces };
}

/** For each set of up to `most` - 1 values, the others. Infinity if it is more than `limit`. */
function numPlacesOf(numValues: number, most: number, limit: number): number {
  let numSets = 1;
  let numPlaces = 0;
  for (let size = 0; size < most && numPlaces <= limit; size++) {
    numPlaces += numSets * (numValues - size);
    numSets = (numSets * (numValues - size)) / (size + 1);
  }
  return numPlaces;
}
