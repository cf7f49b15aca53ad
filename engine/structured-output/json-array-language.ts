/** The texts of JSON arrays with items described by a schema. */
import { countedItems, MAX_COUNTED_PLACES, numCountedPlaces } from "./counted-items.ts";
import type { CountedItems } from "./counted-items.ts";
import { literalOf, sequenceOf } from "./expression.ts";
import type { Expression } from "./expression.ts";
import { countBounds } from "./json-bounds.ts";
import type { CountBounds } from "./json-bounds.ts";
import type { JsonObject } from "./json-schema.ts";
import { comma, repeat, whitespace } from "./json-text.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { MAX_UNIQUE_PLACES, uniqueItems } from "./unique-items.ts";

const uniqueAdvice = "leave it out, and remove repeated items from the answer";

export interface JsonArrayContext {
  /** Rules are added to it. */
  readonly rules: Map<string, Expression>;
  readonly valueOf: (schema: unknown, path: string) => Expression;
  /** All values of a schema that lists them; null for any other. */
  readonly valuesOf: (schema: unknown, path: string) => readonly unknown[] | null;
  /** Returns the expression without a text, for a reason. */
  readonly nothing: (reason: string) => Expression;
}

/** Mutable: counts the places of its lists. */
export class JsonArrayWriter {
  readonly #context: JsonArrayContext;
  #numUniquePlaces = 0;
  #numCountedPlaces = 0;

  constructor(context: JsonArrayContext) {
    this.#context = context;
  }

  /** The first items have their own schemas. Without a schema for further items, none follow. */
  write(schema: JsonObject, path: string): Expression {
    const { min, max } = countBounds(schema, "minItems", "maxItems", path);
    const first = (schema.prefixItems ?? []) as readonly unknown[];
    const others = schema.items ?? schema.unevaluatedItems ?? first.length === 0;
    const mostItems = others === false ? first.length : max;
    if (max < first.length || min > mostItems) {
      const number = min > mostItems ? `at least ${min}` : `at most ${max}`;
      refuseStructuredOutput(`${path} requires ${number} items and describes ${first.length}`);
    }
    if (schema.contains !== undefined) {
      if (schema.uniqueItems === true) {
        refuseStructuredOutput(`${path} has the keywords contains and uniqueItems together, which is not supported`);
      }
      const length = { min: Math.max(min, first.length), max: others === false ? first.length : max };
      return this.#countedArrayOf(schema, first, others, length, path);
    }
    if (schema.uniqueItems === true && mostItems > 1)
      return this.#uniqueArrayOf(others, first.length, { min, max }, path);
    const firstItems = first.map((item, index) => this.#context.valueOf(item, `${path}.prefixItems.${index}`));
    if (firstItems.length === 0 && mostItems === 0) return sequenceOf([literalOf("["), whitespace, literalOf("]")]);
    const parts: Expression[] = firstItems.flatMap((item, index) => (index === 0 ? [item] : [comma, item]));
    if (mostItems > first.length) {
      const other = this.#context.valueOf(others, `${path}.items`);
      const numTold = Math.max(1, first.length);
      if (first.length === 0) parts.push(other);
      parts.push(repeat(sequenceOf([comma, other]), Math.max(0, min - numTold), max - numTold));
    }
    const items = sequenceOf([...parts, whitespace]);
    const canBeEmpty = first.length === 0 && min === 0;
    return sequenceOf([literalOf("["), whitespace, canBeEmpty ? repeat(items, 0, 1) : items, literalOf("]")]);
  }

  /** Items that are all different: only those of which there are few can be enforced. */
  #uniqueArrayOf(items: unknown, numFirstItems: number, bounds: CountBounds, path: string): Expression {
    const values = numFirstItems > 0 ? null : this.#context.valuesOf(items, `${path}.items`);
    if (values === null) {
      const supported = "supported only for items that enum, const or boolean list";
      return refuseStructuredOutput(`${path} has uniqueItems, which is ${supported}; ${uniqueAdvice}`);
    }
    const unique = uniqueItems(values, bounds, MAX_UNIQUE_PLACES - this.#numUniquePlaces);
    if (unique.kind === "too-large") {
      const problem = `${values.length} values whose orders take too many parts`;
      return refuseStructuredOutput(`${path} has uniqueItems with ${problem}; lower maxItems, or ${uniqueAdvice}`);
    }
    if (unique.kind === "none") {
      if (bounds.min > 0)
        return this.#context.nothing(`${path} requires ${bounds.min} different items of ${values.length}`);
      return sequenceOf([literalOf("["), whitespace, literalOf("]")]);
    }
    this.#numUniquePlaces += unique.numPlaces;
    const content = sequenceOf([unique.expression, whitespace]);
    return sequenceOf([literalOf("["), whitespace, bounds.min === 0 ? repeat(content, 0, 1) : content, literalOf("]")]);
  }

  /** Items that match `contains` are counted. */
  #countedArrayOf(
    schema: JsonObject,
    first: readonly unknown[],
    others: unknown,
    length: CountBounds,
    path: string,
  ): Expression {
    const { contains, minContains = 1, maxContains } = schema;
    const counted = countBounds({ minContains, maxContains }, "minContains", "maxContains", path);
    const isOpen = counted.max === Infinity;
    const schemas = [...first, others].map((item) => ({
      counted: { allOf: [item, contains] },
      other: isOpen ? item : { allOf: [item, { not: contains }] },
    }));
    const at = (index: number): (typeof schemas)[number] => schemas[Math.min(index, first.length)]!;
    const items: CountedItems = {
      length,
      counted,
      numFirst: first.length,
      countedAt: (index) => this.#context.valueOf(at(index).counted, `${path}.contains`),
      otherAt: (index) => this.#context.valueOf(at(index).other, `${path}.items`),
    };
    this.#numCountedPlaces += numCountedPlaces(items);
    if (this.#numCountedPlaces > MAX_COUNTED_PLACES) {
      refuseStructuredOutput(`${path} has contains beside bounds that take too many parts; make the bounds smaller`);
    }
    const lists = countedItems(items, `${path} (list ${this.#numCountedPlaces})`, this.#context.rules);
    // Which of the counts can end is found with all other parts that no value matches.
    this.#context.nothing(`${path} has no list with so many items that match contains`);
    return lists;
  }
}
