/** The texts of JSON objects with properties described by a schema. */
import { alternativesOf, literalOf, sequenceOf } from "./expression.ts";
import type { Expression } from "./expression.ts";
import { countBounds } from "./json-bounds.ts";
import { isObject, listedNames } from "./json-schema.ts";
import type { JsonObject } from "./json-schema.ts";
import { colon, comma, constantOf, repeat, rule, whitespace } from "./json-text.ts";
import { namesOtherThan } from "./other-names.ts";
import { PatternProperties } from "./pattern-properties.ts";
import { PropertyNames } from "./property-names.ts";
import { refuseStructuredOutput } from "./refusal.ts";

export interface JsonObjectContext {
  /** Rules are added to it. */
  readonly rules: Map<string, Expression>;
  readonly valueOf: (schema: unknown, path: string) => Expression;
  /** Returns a string that matches the schema of a name. */
  readonly nameOf: (schema: JsonObject, path: string) => Expression;
}

/** A property described by name. */
interface Property {
  /** As written in JSON. */
  readonly name: string;
  /** What follows the name. */
  readonly value: Expression;
  readonly isRequired: boolean;
}

/** Properties that a schema does not describe by name. */
interface OtherProperties {
  /** Of their values; false if there are none. */
  readonly schema: unknown;
  /** Described names, which they do not have. */
  readonly names: readonly string[];
  readonly patterns: PatternProperties | null;
  /** Of names of rules. */
  readonly prefix: string;
}

/** The possible contents of the rest of an object. */
interface Shape {
  readonly name: string;
  readonly properties: readonly Property[];
  /** Any property after those; null if none is allowed. */
  readonly otherPair: Expression | null;
  readonly min: number;
  readonly max: number;
}

/**
 * Maximum number of rules for all objects of a schema that bounds their number of properties: there is one rule per
 * property and number. This many take half a second.
 */
const MAX_TAILS = 15_000;
/**
 * Maximum number of characters of all names that further properties must not have: there is a state for each. This many
 * take some tens of milliseconds.
 */
const MAX_NAME_CHARACTERS = 20_000;
/** Maximum number of patterns of names: they are compared with each other. This many take a tenth of a second. */
const MAX_PATTERNS = 500;
/** Rules with longer paths have names without them: thousands of rules may have the same path. */
const MAX_PATH_CHARACTERS = 200;

/** Mutable: creates names for its rules. */
export class JsonObjectWriter {
  readonly #context: JsonObjectContext;
  #numObjects = 0;
  #numTails = 0;
  #numNameCharacters = 0;
  #numPatterns = 0;
  /** By large part: the rule that stands for it. */
  readonly #parts = new Map<Expression, Expression>();

  constructor(context: JsonObjectContext) {
    this.#context = context;
  }

  /**
   * Described properties come first, in order, and optional ones may be left out. Other properties follow. If the
   * schema describes properties, others are allowed only if it says so, and under names that it does not describe.
   */
  write(given: JsonObject, path: string): Expression {
    const schema = withListedProperties(given);
    const { rules } = this.#context;
    const { min, max } = countBounds(schema, "minProperties", "maxProperties", path);
    const described = isObject(schema.properties) ? schema.properties : {};
    const required = (schema.required ?? []) as readonly string[];
    const missing = [...new Set(required)].filter((name) => !Object.hasOwn(described, name));
    const other = schema.additionalProperties ?? schema.unevaluatedProperties ?? schema.properties === undefined;
    const requiredNames = new Set(required);
    const patterns = isObject(schema.patternProperties) ? this.#patternsOf(schema.patternProperties, path) : null;
    const toProperty = ([name, inner]: [string, unknown]): Property => ({
      name: constantOf(name),
      value: this.#value(inner, `${path}.properties.${name}`),
      isRequired: requiredNames.has(name),
    });
    const { additionalProperties = true } = schema;
    const entries = [
      ...Object.entries(described).map(([name, inner]) => withPatterns(name, [inner], patterns)),
      ...missing.map((name) => withPatterns(name, [], patterns, additionalProperties)),
    ];
    const forbidden = entries.find(
      ([name, inner]) => inner === false && requiredNames.has(name) && !Object.hasOwn(described, name),
    );
    if (forbidden !== undefined) {
      refuseStructuredOutput(`${path} requires the property ${forbidden[0]}, which is not one of its properties`);
    }
    const properties = entries.map(toProperty);
    const object = `object ${this.#numObjects++}`;
    const names = entries.map(([key]) => key);
    const furtherPair = this.#otherPair(schema, { schema: other, names, patterns, prefix: `names of ${object}` }, path);
    const otherPair = furtherPair === null ? null : this.#mention(furtherPair, path);
    const ruleName = nameOfRule(path, object);
    const shape: Shape = { name: ruleName, properties, otherPair, min, max };
    if (properties.length === 0 && otherPair === null && min === 0) return literalOf("{}");
    const text = new ObjectText(shape, rules, path);
    this.#countTails(text.numCountedTails, path);
    return text.write();
  }

  #patternsOf(patternProperties: JsonObject, path: string): PatternProperties {
    this.#numPatterns += Object.keys(patternProperties).length;
    if (this.#numPatterns > MAX_PATTERNS) {
      refuseStructuredOutput(
        `json is too large: patternProperties up to ${path} have more than ${MAX_PATTERNS} patterns`,
      );
    }
    return new PatternProperties(patternProperties, path);
  }

  #countTails(numTails: number, path: string): void {
    this.#numTails += numTails;
    if (this.#numTails <= MAX_TAILS) return;
    const problem = `the properties up to ${path} and the bounds for their number`;
    refuseStructuredOutput(`json is too large: ${problem} take more than ${MAX_TAILS} rules`);
  }

  #pair(name: Expression, schema: unknown, path: string): Expression {
    return sequenceOf([name, this.#value(schema, path)]);
  }

  #value(schema: unknown, path: string): Expression {
    return sequenceOf([colon, this.#mention(this.#context.valueOf(schema, path), path)]);
  }

  /**
   * A rule in place of a part that may be large: values are parts of several rules, and so they would be looked at again
   * with each of these.
   */
  #mention(part: Expression, path: string): Expression {
    if (part.kind === "rule" || part.kind === "set" || part.kind === "words") return part;
    let mention = this.#parts.get(part);
    if (mention === undefined) {
      const name = nameOfRule(path, `part ${this.#parts.size}`);
      this.#context.rules.set(name, part);
      this.#parts.set(part, (mention = rule(name)));
    }
    return mention;
  }

  #otherPair(schema: JsonObject, other: OtherProperties, path: string): Expression | null {
    const { nameOf } = this.#context;
    const { propertyNames, additionalProperties, unevaluatedProperties = false } = schema;
    if (other.patterns !== null) {
      const classes = other.patterns.divide(other.names, additionalProperties ?? unevaluatedProperties);
      const pairs = classes.map(({ pattern, schema: inner }) => {
        const place = `${path}.patternProperties.${pattern}`;
        return this.#pair(nameOf({ pattern }, place), inner, place);
      });
      return pairs.length === 0 ? null : alternativesOf(pairs);
    }
    if (other.schema === false) return null;
    const name = isObject(propertyNames)
      ? nameOf(propertyNames, `${path}.propertyNames`)
      : this.#otherName(other, path);
    return this.#pair(name, other.schema, `${path}.additionalProperties`);
  }

  #otherName({ names, prefix }: OtherProperties, path: string): Expression {
    if (names.length === 0) return rule("string");
    for (const { length } of names) this.#numNameCharacters += length;
    if (this.#numNameCharacters > MAX_NAME_CHARACTERS) {
      const problem = `the names of properties up to ${path}, beside which others are allowed, have`;
      refuseStructuredOutput(`json is too large: ${problem} more than ${MAX_NAME_CHARACTERS} characters`);
    }
    return namesOtherThan(names, prefix, this.#context.rules);
  }
}

/** A property has the schema of its name and those of all patterns that match it, or else that of other properties. */
function withPatterns(
  name: string,
  own: readonly unknown[],
  patterns: PatternProperties | null,
  otherwise?: unknown,
): [string, unknown] {
  const schemas = [...own, ...(patterns?.schemasOf(name) ?? [])];
  if (schemas.length === 0) return [name, otherwise];
  return [name, schemas.length === 1 ? schemas[0] : { allOf: schemas }];
}

/** Describes the properties by name if `propertyNames` lists their names and some are required. */
function withListedProperties(schema: JsonObject): JsonObject {
  const { required, propertyNames, ...others } = schema;
  const names = Array.isArray(required) && required.length > 0 ? listedNames({ propertyNames }) : null;
  if (names === null) return schema;
  const value = schema.additionalProperties ?? schema.unevaluatedProperties ?? true;
  const properties = Object.fromEntries(names.map((name) => [name, value]));
  return { ...others, required, properties, additionalProperties: false };
}

function nameOfRule(path: string, name: string): string {
  return path.length > MAX_PATH_CHARACTERS ? name : `${path} (${name})`;
}

/** Mutable: writes the rules of one object. */
class ObjectText {
  readonly #shape: Shape;
  readonly #rules: Map<string, Expression>;
  readonly #path: string;
  /** Number of required properties from each index on. */
  readonly #numRequiredFrom: readonly number[];
  /** Whether the number of properties is bounded. */
  readonly #isCounted: boolean;
  #numNameRules = 0;
  readonly #tails = new Map<string, Expression | null>();
  /** Null for an object without described properties. */
  readonly #names: PropertyNames | null;

  constructor(shape: Shape, rules: Map<string, Expression>, path: string) {
    const { properties, min, max } = shape;
    this.#shape = shape;
    this.#rules = rules;
    this.#path = path;
    const numRequiredFrom: number[] = Array.from({ length: properties.length + 1 }, () => 0);
    for (let index = properties.length - 1; index >= 0; index--)
      numRequiredFrom[index] = numRequiredFrom[index + 1]! + (properties[index]!.isRequired ? 1 : 0);
    this.#numRequiredFrom = numRequiredFrom;
    this.#isCounted = max !== Infinity || min > numRequiredFrom[0]!;
    this.#names =
      properties.length === 0
        ? null
        : new PropertyNames(
            properties.map((property) => property.name),
            (expression) => {
              const ruleName = `${shape.name} names ${this.#numNameRules++}`;
              rules.set(ruleName, expression);
              return rule(ruleName);
            },
          );
  }

  /** Number of rules that counting the properties needs; that of other rules is proportional to the source. */
  get numCountedTails(): number {
    return this.#isCounted ? this.#numCounts * this.#shape.properties.length : 0;
  }

  /** How many counts of the properties present must be distinguished. */
  get #numCounts(): number {
    const { properties, min, max } = this.#shape;
    if (!this.#isCounted) return 1;
    return Math.min(properties.length, max === Infinity ? Math.max(1, min) : max);
  }

  write(): Expression {
    const { otherPair, min, max } = this.#shape;
    const options: Expression[] = [];
    this.#writeTails();
    const described = this.#propertiesFrom(0, 0);
    if (described !== null) options.push(described);
    const isFree = this.#numRequiredFrom[0] === 0;
    if (isFree && otherPair !== null && max > 0) {
      options.push(sequenceOf([otherPair, repeat(sequenceOf([comma, otherPair]), Math.max(0, min - 1), max - 1)]));
    }
    const canBeEmpty = isFree && min === 0;
    if (options.length === 0 && !canBeEmpty) {
      refuseStructuredOutput(`${this.#path} has no room for its required properties`);
    }
    if (options.length === 0) return literalOf("{}");
    const content = sequenceOf([alternativesOf(options), whitespace]);
    return sequenceOf([literalOf("{"), whitespace, canBeEmpty ? repeat(content, 0, 1) : content, literalOf("}")]);
  }

  /** The text after the property before `index` when `count` properties are present; null if the object cannot end. */
  #tailAt(index: number, count: number): Expression | null {
    return this.#tails.get(this.#keyOf(index, count)) ?? null;
  }

  /** From the last property to the first, separately for each number of properties before it. */
  #writeTails(): void {
    const { properties, otherPair, min, max, name } = this.#shape;
    const numCounts = this.#numCounts;
    for (let count = 1; count <= numCounts; count++) {
      const [least, most] = this.#isCounted ? [Math.max(0, min - count), max - count] : [0, Infinity];
      const isPossible = most >= 0 && (otherPair !== null || least === 0);
      const others = otherPair === null ? literalOf("") : repeat(sequenceOf([comma, otherPair]), least, most);
      this.#tails.set(this.#keyOf(properties.length, count), isPossible ? others : null);
    }
    for (let index = properties.length - 1; index > 0; index--) {
      for (let count = 1; count <= Math.min(index, numCounts); count++) {
        const next = this.#propertiesFrom(index, count);
        const last = this.#numRequiredFrom[index] === 0 ? this.#tailAt(properties.length, count) : null;
        const options = [...(next === null ? [] : [sequenceOf([comma, next])]), ...(last === null ? [] : [last])];
        const key = this.#keyOf(index, count);
        if (options.length === 0) {
          this.#tails.set(key, null);
          continue;
        }
        const ruleName = `${name} ${key}`;
        this.#rules.set(ruleName, alternativesOf(options));
        this.#tails.set(key, rule(ruleName));
      }
    }
  }

  /** A property from `index` on and the text after it, when `count` are present: the next required one is the last. */
  #propertiesFrom(index: number, count: number): Expression | null {
    const { properties, max } = this.#shape;
    if (this.#names === null || count === max) return null;
    let last = index;
    while (last < properties.length - 1 && !properties[last]!.isRequired) last++;
    return this.#names.write({
      first: index,
      last,
      key: this.#countKey(count),
      after: (chosen) => {
        const tail = this.#tailAt(chosen + 1, count + 1);
        return tail && sequenceOf([properties[chosen]!.value, tail]);
      },
    });
  }

  /** Counts above the minimum are equivalent if there is no maximum. */
  #countKey(count: number): string {
    const { min, max } = this.#shape;
    if (!this.#isCounted) return "";
    return ` with ${max === Infinity ? Math.min(count, Math.max(1, min)) : count}`;
  }

  #keyOf(index: number, count: number): string {
    return `from ${index}${this.#countKey(count)}`;
  }
}
