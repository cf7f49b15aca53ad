/** The names of an object's properties, by their beginnings: a reader follows all names that begin alike at once. */
import { alternativesOf, literalOf, sequenceOf } from "./expression.ts";
import type { Expression } from "./expression.ts";

/** Names with the same beginning. */
interface Branch {
  /** What they have in common after the beginning of the branch that this one is part of. */
  readonly text: string;
  /** Indices of properties, ascending. */
  readonly indices: readonly number[];
  /** Empty for a single name. */
  readonly branches: readonly Branch[];
}

/** What is written of each branch, by the places of the first and last name in it. */
type Parts = Map<Branch, Map<number, Expression | null>>;

/** Some of the properties. */
export interface PropertyRange {
  readonly first: number;
  /** Inclusive. */
  readonly last: number;
  /** Distinguishes what follows the names. */
  readonly key: string;
  /** What follows the name of the property; null if the property is not possible. */
  readonly after: (index: number) => Expression | null;
}

/** Mutable: equal parts are written once. */
export class PropertyNames {
  readonly #names: readonly string[];
  readonly #root: Branch;
  readonly #toRule: (expression: Expression) => Expression;
  readonly #parts = new Map<string, Parts>();

  /**
   * @param names As written in JSON, so that none begins with another. At least one.
   * @param toRule Adds a rule with this body and returns its mention.
   */
  constructor(names: readonly string[], toRule: (expression: Expression) => Expression) {
    this.#names = names;
    this.#toRule = toRule;
    const sorted = Array.from(names.keys()).sort((left, right) => (names[left]! < names[right]! ? -1 : 1));
    this.#root = this.#divide(sorted, 0);
  }

  /** The names of the range, each with what follows it. Null if no property is possible. */
  write(range: PropertyRange): Expression | null {
    let parts = this.#parts.get(range.key);
    if (parts === undefined) this.#parts.set(range.key, (parts = new Map()));
    return this.#write(this.#root, 0, range, parts);
  }

  /** @param sorted By name. @param start Where the branch begins in each name. */
  #divide(sorted: readonly number[], start: number): Branch {
    const [first, last] = [this.#names[sorted[0]!]!, this.#names[sorted.at(-1)!]!];
    const indices = sorted.toSorted((left, right) => left - right);
    if (sorted.length === 1) return { text: first.slice(start), indices, branches: [] };
    const end = commonLength(first, last, start);
    const groups = Map.groupBy(sorted, (index) => this.#names[index]!.codePointAt(end));
    return {
      text: first.slice(start, end),
      indices,
      branches: Array.from(groups.values(), (group) => this.#divide(group, end)),
    };
  }

  /**
   * Each part of a branch is a rule: ranges share it, and would look at it again with each.
   *
   * @param start Where the branch begins in its names.
   */
  #write(branch: Branch, start: number, range: PropertyRange, parts: Parts): Expression | null {
    const { indices, branches, text } = branch;
    const from = lowerBound(indices, range.first);
    const end = lowerBound(indices, range.last + 1);
    if (from === end) return null;
    // Ranges that differ in the names of other branches are the same here.
    let written = parts.get(branch);
    if (written === undefined) parts.set(branch, (written = new Map()));
    const key = from * (indices.length + 1) + end;
    let expression = written.get(key);
    if (expression !== undefined) return expression;
    if (end - from === 1) {
      const index = indices[from]!;
      const rest = range.after(index);
      expression = rest && sequenceOf([literalOf(this.#names[index]!.slice(start)), rest]);
    } else {
      const options = branches.flatMap((longer) => this.#write(longer, start + text.length, range, parts) ?? []);
      expression = options.length === 0 ? null : sequenceOf([literalOf(text), alternativesOf(options)]);
      // Each range has a part of the root of its own.
      if (expression !== null && branch !== this.#root) expression = this.#toRule(expression);
    }
    written.set(key, expression);
    return expression;
  }
}

/** Of whole characters. The texts differ. */
function commonLength(first: string, second: string, start: number): number {
  let end = start;
  while (first[end] === second[end]) end++;
  const isWithinPair = end > start && first.codePointAt(end - 1)! > 0xffff;
  return isWithinPair ? end - 1 : end;
}

/** How many of the numbers, which ascend, are smaller. */
function lowerBound(numbers: readonly number[], limit: number): number {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle]! < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}
