/** Writes the alternatives of `oneOf` so that no value matches two of them. */
import { EngineError } from "../contract/errors.ts";
import { negationOf } from "./schema-conditions.ts";
import type { Choice, ConditionContext } from "./schema-conditions.ts";
import { allowedBy, decidableKeywords } from "./schema-constants.ts";
import { areDisjoint } from "./schema-disjointness.ts";
import { modernSchema } from "./schema-drafts.ts";

type JsonObject = Readonly<Record<string, unknown>>;

export interface ExclusionContext extends ConditionContext {
  /** Counts a comparison of two schemas. False beyond a limit. */
  readonly canCompare: () => boolean;
}

/** Maximum number of references from one to the next that are followed. */
const MAX_FOLLOWED = 16;

/**
 * The alternatives of a schema's `oneOf`, each without the values of the others. Null if they have no value in common
 * anyway. An alternative whose negation is not supported stays in the others.
 */
export function exclusiveOptions(
  { oneOf, properties }: JsonObject,
  path: string,
  context: ExclusionContext,
): readonly unknown[] | null {
  const options = oneOf as readonly unknown[];
  const disjointness = {
    schemaAt: (reference: string) => context.schemaAt(reference, path),
    count: context.canCompare,
  };
  const followed = options.map((option) => follow(option, path, context));
  let areExclusive = true;
  const exclusive = options.map((option, index) => {
    const own = followed[index];
    const others: Choice[] = [];
    for (const [otherIndex, other] of followed.entries()) {
      if (otherIndex === index || areDisjoint(own, other, disjointness)) continue;
      const negation = tryNegate(other, own, isObject(properties) ? properties : {}, `${path}.${otherIndex}`, context);
      if (negation === null) continue;
      areExclusive = false;
      others.push(negation);
    }
    if (others.some((choice) => choice.length === 0)) return false;
    if (others.length === 0) return option;
    return { allOf: [option, ...others.map((choice) => (choice.length === 1 ? choice[0] : { anyOf: choice }))] };
  });
  return areExclusive ? null : exclusive;
}

/** The schema at the end of a chain of references. */
function follow(option: unknown, path: string, context: ConditionContext): unknown {
  let schema = option;
  for (let numFollowed = 0; isObject(schema) && typeof schema.$ref === "string"; numFollowed++) {
    if (numFollowed === MAX_FOLLOWED || Object.keys(schema).some((keyword) => isBeside(keyword, context))) break;
    schema = context.schemaAt(schema.$ref, path);
  }
  return isObject(schema) ? modernSchema(schema) : schema;
}

function isBeside(keyword: string, { isRestricting }: ConditionContext): boolean {
  return keyword !== "$ref" && isRestricting(keyword);
}

/** The values of `own` that `other` does not allow. Null if that cannot be said. */
function tryNegate(
  other: unknown,
  own: unknown,
  beside: JsonObject,
  path: string,
  context: ConditionContext,
): Choice | null {
  try {
    if (!isObject(own) || !isObject(other)) return negationOf(other, path, context);
    const constants = own.const === undefined ? own.enum : [own.const];
    const keywords = Object.keys(other).filter((keyword) => context.isRestricting(keyword));
    if (Array.isArray(constants) && keywords.every((keyword) => decidableKeywords.has(keyword))) {
      const isOther = allowedBy(other);
      const left = constants.filter((constant) => !isOther(constant));
      return left.length === 0 ? [] : [{ enum: left }];
    }
    const { type, additionalProperties, ...described } = other;
    const negated = includesTypes(type, own.type) ? described : { type, ...described };
    const names = describedNames(own, beside);
    if (names === null) return negationOf({ additionalProperties, ...negated }, path, context);
    if (additionalProperties !== false)
      return withinNames(negationOf({ additionalProperties, ...negated }, path, context), names);
    if (other.patternProperties !== undefined) return null;
    const known = isObject(other.properties) ? other.properties : {};
    const unknown = [...names].filter((name) => !Object.hasOwn(known, name));
    const further = unknown.map((name) => ({ type: "object", required: [name] }));
    return [...withinNames(negationOf(negated, path, context), names), ...further];
  } catch (error) {
    if (error instanceof EngineError) return null;
    throw error;
  }
}

/** Whether all of these types are among those. */
function includesTypes(types: unknown, own: unknown): boolean {
  const [all, some] = [types, own].map((type) => (Array.isArray(type) ? (type as unknown[]) : [type]));
  return (
    own !== undefined && some!.every((type) => all!.includes(type) || (type === "integer" && all!.includes("number")))
  );
}

/** The properties of an alternative that allows no others, with those beside `oneOf`. Null for any other alternative. */
function describedNames(
  { properties, additionalProperties = false, patternProperties }: JsonObject,
  beside: JsonObject,
): ReadonlySet<string> | null {
  if (!isObject(properties) || additionalProperties !== false || patternProperties !== undefined) return null;
  return new Set([...Object.keys(beside), ...Object.keys(properties)]);
}

/** Leaves out the choices in which a property has another value that the alternative never generates. */
function withinNames(negation: Choice, names: ReadonlySet<string>): Choice {
  const isUndescribed = (name: unknown): boolean => typeof name === "string" && !names.has(name);
  const possible = negation.filter(
    (schema) => !isObject(schema) || !Array.isArray(schema.required) || !schema.required.some(isUndescribed),
  );
  // Without a property that is not described anyway.
  const absent = possible.find((schema) => {
    if (!isObject(schema) || !isObject(schema.properties) || schema.required !== undefined) return false;
    const [name] = Object.keys(schema.properties);
    return isUndescribed(name) && schema.properties[name!] === false;
  });
  return absent === undefined ? possible : [absent];
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
