/** Finds schemas that no value matches together, by the types, constants, properties and bounds that they state. */
import { allowedBy, hasType } from "./schema-constants.ts";
import { modernSchema } from "./schema-drafts.ts";

type JsonObject = Readonly<Record<string, unknown>>;

/** Maximum nesting of references, alternatives and properties that are looked into. */
const MAX_COMPARED_LEVELS = 8;

const boundPairs = [
  ["minimum", "maximum"],
  ["minLength", "maxLength"],
  ["minItems", "maxItems"],
  ["minProperties", "maxProperties"],
] as const;
/** The type that each lower bound is about. */
const boundedTypes: Readonly<Record<string, string>> = {
  minimum: "number",
  minLength: "string",
  minItems: "array",
  minProperties: "object",
};

export interface DisjointnessContext {
  readonly schemaAt: (reference: string) => unknown;
  /** Counts a comparison of two schemas. False beyond a limit. */
  readonly count: () => boolean;
}

/** Whether no value can match both schemas. False also if that is not obvious, or takes too many comparisons. */
export function areDisjoint(
  left: unknown,
  right: unknown,
  context: DisjointnessContext,
  levelsLeft: number = MAX_COMPARED_LEVELS,
): boolean {
  if (left === false || right === false) return true;
  if (!isObject(left) || !isObject(right) || levelsLeft === 0 || !context.count()) return false;
  const [ofLeft, ofRight] = [modernSchema(left), modernSchema(right)];
  const areApart = (one: unknown, other: unknown): boolean => areDisjoint(one, other, context, levelsLeft - 1);
  return (
    excludes(ofLeft, ofRight) ||
    excludes(ofRight, ofLeft) ||
    haveOtherProperties(ofLeft, ofRight, areApart) ||
    haveOtherProperties(ofRight, ofLeft, areApart) ||
    partsOf(ofLeft, context).some((part) => areApart(part, right)) ||
    partsOf(ofRight, context).some((part) => areApart(part, left)) ||
    optionListsOf(ofLeft).some((options) => options.every((option) => areApart(option, right))) ||
    optionListsOf(ofRight).some((options) => options.every((option) => areApart(option, left)))
  );
}

/** A value matches all of these as well. */
function partsOf({ allOf, $ref }: JsonObject, { schemaAt }: DisjointnessContext): readonly unknown[] {
  const parts = Array.isArray(allOf) ? (allOf as unknown[]) : [];
  return typeof $ref === "string" ? [...parts, schemaAt($ref)] : parts;
}

/** A value matches one of each list as well. */
function optionListsOf({ anyOf, oneOf }: JsonObject): readonly (readonly unknown[])[] {
  return [anyOf, oneOf].filter((options): options is unknown[] => Array.isArray(options));
}

/** By the types, constants and bounds themselves. */
function excludes(left: JsonObject, right: JsonObject): boolean {
  const constants = constantsOf(left);
  // A negation of keywords that are not decided would exclude too much.
  const { not: _, ...decided } = right;
  if (constants !== null) return !constants.some(allowedBy(decided));
  const [types, others] = [typesOf(left), typesOf(right)];
  if (types === null || others === null) return false;
  const isShared = (type: string): boolean =>
    others.includes(type) ||
    (type === "integer" && others.includes("number")) ||
    (type === "number" && others.includes("integer"));
  return !types.some((type) => isShared(type) && !haveOtherBounds(type, left, right));
}

function haveOtherBounds(type: string, left: JsonObject, right: JsonObject): boolean {
  return boundPairs.some(([lower, upper]) => {
    if (boundedTypes[lower] !== (type === "integer" ? "number" : type)) return false;
    const [least, most] = [left[lower], right[upper]];
    if (typeof least === "number" && typeof most === "number" && least > most) return true;
    const [above, below] = [left[`exclusiveM${lower.slice(1)}`], right[`exclusiveM${upper.slice(1)}`]];
    return (
      (typeof above === "number" && typeof most === "number" && above >= most) ||
      (typeof least === "number" && typeof below === "number" && least >= below) ||
      (typeof above === "number" && typeof below === "number" && above >= below)
    );
  });
}

/** Objects only: one schema requires a property that the other forbids, or describes with other values. */
function haveOtherProperties(
  left: JsonObject,
  right: JsonObject,
  areApart: (one: unknown, other: unknown) => boolean,
): boolean {
  const [types, others] = [typesOf(left), typesOf(right)];
  const areObjects = types?.every((type) => type === "object") === true || others?.every((type) => type === "object");
  if (areObjects !== true || !Array.isArray(left.required)) return false;
  const described = isObject(right.properties) ? right.properties : {};
  const own = isObject(left.properties) ? left.properties : {};
  return (left.required as unknown[]).some((name) => {
    if (typeof name !== "string") return false;
    if (!Object.hasOwn(described, name))
      return right.additionalProperties === false && right.patternProperties === undefined;
    return areApart(Object.hasOwn(own, name) ? own[name] : true, described[name]);
  });
}

function constantsOf(schema: JsonObject): readonly unknown[] | null {
  if (schema.const !== undefined) return [schema.const];
  return Array.isArray(schema.enum) ? schema.enum : null;
}

function typesOf(schema: JsonObject): readonly string[] | null {
  const { type } = schema;
  const types = Array.isArray(type) ? (type as unknown[]) : [type];
  const names = ["object", "array", "string", "number", "integer", "boolean", "null"];
  if (types.length > 0 && types.every((name) => typeof name === "string" && names.includes(name)))
    return types as string[];
  const constants = constantsOf(schema);
  if (constants === null) return null;
  return names.filter((name) => constants.some((constant) => hasType(constant, name)));
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
