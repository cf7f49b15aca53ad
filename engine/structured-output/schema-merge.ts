/** Merges the schemas of `allOf`, conditions, and keywords beside `$ref`, `anyOf` and `oneOf`, into one schema. */
import { exclusiveOptions } from "./exclusive-options.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { divideConditions, hasConditions } from "./schema-conditions.ts";
import type { Choice, ConditionContext } from "./schema-conditions.ts";
import { allowedBy, decidableKeywords } from "./schema-constants.ts";
import { modernSchema } from "./schema-drafts.ts";
import { mergeAll, NoValue, withPossibleTypes } from "./schema-parts.ts";
import { schemaAt } from "./schema-references.ts";

type JsonObject = Readonly<Record<string, unknown>>;

/**
 * Maximum number of schemas and properties in all merges of a schema: parts that refer to themselves can be merged
 * without end. This many take a tenth of a second, most of it in slices.
 */
const MAX_MERGED = 4000;

/** Maximum number of pairs of schemas that are compared. This many take some tens of milliseconds. */
const MAX_COMPARED = 100_000;

const alternatives = ["anyOf", "oneOf"] as const;

interface Merged {
  readonly merged: JsonObject;
  /** Of each choice, a value must match one schema as well. */
  readonly choices: readonly Choice[];
}

/** Mutable: counts its work. */
export class SchemaMerger {
  readonly #root: unknown;
  readonly #isRestricting: (keyword: string) => boolean;
  readonly #isExclusive: boolean;
  /** By schema: see `#modern`. */
  readonly #modernSchemas = new WeakMap<JsonObject, JsonObject>();
  #numMerged = 0;
  #numCompared = 0;

  /**
   * @param isRestricting Whether a keyword restricts values.
   * @param isExclusive Whether a value may match only one schema of `oneOf`. Otherwise, `oneOf` is `anyOf`.
   */
  constructor(root: unknown, isRestricting: (keyword: string) => boolean, isExclusive: boolean) {
    this.#root = root;
    this.#isRestricting = isRestricting;
    this.#isExclusive = isExclusive;
  }

  /**
   * The schema that allows what all parts of a schema allow; the schema itself if it has one part and no keyword of an
   * older draft. Throws `NoValue` if the parts allow no value together, and EngineError `invalid_argument` for parts that
   * cannot be merged.
   */
  merge(given: JsonObject, path: string): JsonObject {
    const schema = this.#modern(given, path);
    const { allOf } = schema;
    const hasParts = Array.isArray(allOf) && allOf.length > 1;
    const isCombined = hasParts || this.#isBesideOthers(schema, "allOf") || this.#isBesideOthers(schema, "$ref");
    const isMerged = isCombined || hasConditions(schema);
    const { merged, choices } = isMerged ? this.#mergeParts(schema, path) : { merged: schema, choices: [] };
    const keyword = alternatives.find(
      (name) => this.#isBesideOthers(merged, name) || (choices.length > 0 && merged[name] !== undefined),
    );
    if (keyword !== undefined && !Array.isArray(merged[keyword])) return merged;
    const { [keyword ?? ""]: own, unevaluatedProperties, unevaluatedItems, ...others } = merged;
    const [options, ...further] = keyword === undefined ? choices : [own as Choice, ...choices];
    if (options === undefined) return this.#withAllowedConstants(merged, path);
    this.#count(options.length, path);
    const conditions = further.map((anyOf) => ({ anyOf }));
    // `unevaluated...` are about the properties and items of all parts.
    const beside = (option: unknown): JsonObject => ({
      unevaluatedProperties,
      unevaluatedItems,
      allOf: [others, option, ...conditions],
    });
    return { [keyword ?? "anyOf"]: options.map(beside) };
  }

  #mergeParts(schema: JsonObject, path: string): Merged {
    const choices: Choice[] = [];
    const context = this.#conditionContext();
    const parts = this.#partsOf(schema, path).map((part) => {
      if (!hasConditions(part)) return part;
      const divided = divideConditions(part, path, context);
      choices.push(...divided.choices);
      return divided.rest;
    });
    if (choices.some((choice) => choice.length === 0)) throw new NoValue(`${path} allows no value`);
    const merged = withPossibleTypes(mergeAll(parts, choices, path, this.#isRestricting), path);
    this.#checkConstants(merged, path);
    return { merged, choices };
  }

  #conditionContext(): ConditionContext {
    return {
      schemaAt: (reference, at) => schemaAt(this.#root, reference, at),
      isRestricting: this.#isRestricting,
      count: (at) => this.#count(1, at),
    };
  }

  /** Without keywords of older drafts, and with alternatives of `oneOf` that exclude each other. */
  #modern(given: JsonObject, path: string): JsonObject {
    const schema = modernSchema(given);
    if (!this.#isExclusive || !Array.isArray(schema.oneOf)) return schema;
    let modern = this.#modernSchemas.get(given);
    if (modern === undefined) this.#modernSchemas.set(given, (modern = this.#withExclusiveOptions(schema, path)));
    return modern;
  }

  #withExclusiveOptions(schema: JsonObject, path: string): JsonObject {
    const options = exclusiveOptions(schema, `${path}.oneOf`, {
      ...this.#conditionContext(),
      canCompare: () => ++this.#numCompared <= MAX_COMPARED,
    });
    if (options === null) return schema;
    const { oneOf: _, ...others } = schema;
    if (schema.anyOf === undefined) return { ...others, anyOf: options };
    const { allOf } = schema;
    return { ...others, allOf: [...(Array.isArray(allOf) ? (allOf as unknown[]) : []), { anyOf: options }] };
  }

  /** Finds impossible combinations of conditions early: there may be exponentially many. */
  #checkConstants({ properties, required }: JsonObject, path: string): void {
    if (!isObject(properties) || !Array.isArray(required)) return;
    for (const name of required as readonly string[]) {
      const schema = Object.hasOwn(properties, name) ? properties[name] : undefined;
      if (schema === false) throw new NoValue(`${path} requires the property ${name} and forbids it`);
      if (!isObject(schema) || !Array.isArray(schema.allOf)) continue;
      const isConstant = schema.allOf.some((part) => isObject(part) && (part.const ?? part.enum) !== undefined);
      if (isConstant) void this.merge(schema, `${path}.properties.${name}`);
    }
  }

  /** Constants that the keywords beside them allow, and no other keyword. */
  #withAllowedConstants(schema: JsonObject, path: string): JsonObject {
    const { const: constant, enum: listed } = schema;
    const [keyword, values] = constant === undefined ? ["enum", listed] : ["const", [constant]];
    if (!Array.isArray(values) || values.length === 0 || schema.$ref !== undefined) return schema;
    const others = Object.keys(schema).filter(
      (other) => other !== keyword && other !== "type" && schema[other] !== undefined && this.#isRestricting(other),
    );
    const unknown = others.find((other) => !decidableKeywords.has(other));
    if (unknown !== undefined) {
      const problem = `has the keywords ${keyword} and ${unknown} together, which is not supported`;
      return refuseStructuredOutput(`${path} ${problem}`);
    }
    const allowed = values.filter(allowedBy(schema));
    if (allowed.length === 0) throw new NoValue(`${path} has no constant in ${keyword} that its other keywords allow`);
    return allowed.length === values.length && others.length === 0 ? schema : { enum: allowed };
  }

  #isBesideOthers(schema: JsonObject, keyword: string): boolean {
    if (schema[keyword] === undefined) return false;
    return Object.keys(schema).some(
      (other) => other !== keyword && schema[other] !== undefined && this.#isRestricting(other),
    );
  }

  /** Follows `$ref` and `allOf`, then the schema's own keywords. Each schema is one part, however often it is mentioned. */
  #partsOf(schema: JsonObject, path: string): readonly JsonObject[] {
    const parts: JsonObject[] = [];
    const pending: { readonly schema: unknown; readonly isPart: boolean }[] = [{ schema, isPart: false }];
    const seen = new Set<unknown>();
    for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
      if (next.isPart) parts.push(next.schema as JsonObject);
      if (next.isPart || next.schema === true || seen.has(next.schema)) continue;
      if (next.schema === false) throw new NoValue(`${path} allows no value`);
      seen.add(next.schema);
      if (!isObject(next.schema)) return refuseStructuredOutput(`${path}.allOf has an entry that is not a JSON Schema`);
      const { allOf, $ref, ...part } = this.#modern(next.schema, path);
      this.#count(1 + Object.keys(part.properties ?? {}).length, path);
      pending.push({ schema: part, isPart: true });
      if (Array.isArray(allOf)) for (const entry of allOf.toReversed()) pending.push({ schema: entry, isPart: false });
      if (typeof $ref === "string") pending.push({ schema: schemaAt(this.#root, $ref, path), isPart: false });
    }
    return parts;
  }

  #count(num: number, path: string): void {
    this.#numMerged += num;
    if (this.#numMerged > MAX_MERGED) {
      const keywords = "allOf, conditions and keywords beside $ref";
      refuseStructuredOutput(`json is too large: ${keywords} up to ${path} have too many parts`);
    }
  }
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
