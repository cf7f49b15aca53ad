/** Lists in which some items are counted: those that match `contains`. */
import { alternativesOf, literalOf, sequenceOf } from "./expression.ts";
import type { Expression } from "./expression.ts";
import type { CountBounds } from "./json-bounds.ts";
import { comma, rule, whitespace } from "./json-text.ts";

/** Maximum number of rules for all such lists of a schema: one for each number of items and of counted ones. */
export const MAX_COUNTED_PLACES = 10_000;

export interface CountedItems {
  /** Of the list. */
  readonly length: CountBounds;
  /** Of the items that are counted. */
  readonly counted: CountBounds;
  /** Number of first items, from which on all items are alike. */
  readonly numFirst: number;
  /** An item that is counted. */
  readonly countedAt: (index: number) => Expression;
  /** An item that is not counted, or any item if their number has no maximum. */
  readonly otherAt: (index: number) => Expression;
}

/** Number of rules that the lists need. */
export function numCountedPlaces({ length, counted, numFirst }: CountedItems): number {
  return (lastIndexOf(length, numFirst) + 1) * (mostCountedOf(counted) + 1);
}

/**
 * The text of such lists.
 *
 * @param rules Receives rules whose names begin with `prefix`.
 */
export function countedItems(items: CountedItems, prefix: string, rules: Map<string, Expression>): Expression {
  const { length, counted, numFirst, countedAt, otherAt } = items;
  const lastIndex = lastIndexOf(length, numFirst);
  const mostCounted = mostCountedOf(counted);
  const nameOf = (index: number, count: number): string =>
    `${prefix} ${Math.min(index, lastIndex)} ${Math.min(count, mostCounted)}`;
  for (let index = 0; index <= lastIndex; index++) {
    for (let count = 0; count <= mostCounted; count++) {
      const options: Expression[] = [];
      const separator = index === 0 ? [] : [comma];
      if (index < length.max) {
        // Without a maximum, items are not counted any further.
        const isCounted = count < mostCounted;
        if (isCounted) options.push(sequenceOf([...separator, countedAt(index), rule(nameOf(index + 1, count + 1))]));
        options.push(sequenceOf([...separator, otherAt(index), rule(nameOf(index + 1, count))]));
      }
      if (index >= length.min && count >= counted.min) options.push(sequenceOf([whitespace, literalOf("]")]));
      rules.set(nameOf(index, count), options.length === 0 ? { kind: "set", set: [] } : alternativesOf(options));
    }
  }
  return sequenceOf([literalOf("["), whitespace, rule(nameOf(0, 0))]);
}

function lastIndexOf({ min, max }: CountBounds, numFirst: number): number {
  return max === Infinity ? Math.max(1, min, numFirst) : max;
}

function mostCountedOf({ min, max }: CountBounds): number {
  return max === Infinity ? min : max;
}
