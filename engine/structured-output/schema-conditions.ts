/** Writes conditions of JSON Schema (`not`, `if`, dependent keywords) as choices between schemas without them. */
import { patternOfNone } from "./pattern-conditions.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { modernSchema } from "./schema-drafts.ts";

type JsonObject = Readonly<Record<string, unknown>>;

/** Schemas of which a value must match one; none means that no value is allowed. */
export type Choice = readonly unknown[];

export interface ConditionContext {
  /** Of a reference, for its negation. */
  readonly schemaAt: (reference: string, path: string) => unknown;
  readonly isRestricting: (keyword: string) => boolean;
  /** Counts a negated schema. Throws EngineError `invalid_argument` beyond a limit. */
  readonly count: (path: string) => void;
}

export const conditionKeywords = ["not", "if", "then", "else", "dependentRequired", "dependentSchemas"];

/** Maximum nesting of negated schemas, which may refer to themselves. */
const MAX_NEGATED_LEVELS = 16;

const allTypes = ["object", "array", "string", "number", "boolean", "null"];

/** A `not` that only excludes constants stays: `{"not": {"enum": […]}}`. */
export function hasConditions(schema: JsonObject): boolean {
  return conditionKeywords.some((keyword) => schema[keyword] !== undefined && !excludesConstants(schema, keyword));
}

function excludesConstants({ not }: JsonObject, keyword: string): boolean {
  return keyword === "not" && isObject(not) && Array.isArray(not.enum) && Object.keys(not).length === 1;
}

/** The rest of a schema, and the choices that its conditions stand for. Throws EngineError `invalid_argument`. */
export function divideConditions(
  schema: JsonObject,
  path: string,
  context: ConditionContext,
  levelsLeft: number = MAX_NEGATED_LEVELS,
): { readonly rest: JsonObject; readonly choices: readonly Choice[] } {
  const { not, if: condition, then = true, else: otherwise = true, dependentRequired, dependentSchemas } = schema;
  const isCondition = (keyword: string): boolean =>
    conditionKeywords.includes(keyword) && !excludesConstants(schema, keyword);
  const rest = Object.fromEntries(Object.entries(schema).filter(([keyword]) => !isCondition(keyword)));
  const choices: Choice[] = [];
  const negate = (negated: unknown, place: string): Choice => new Negation(context).of(negated, place, levelsLeft);
  if (not !== undefined && isCondition("not")) choices.push(negate(not, `${path}.not`));
  if (condition !== undefined && !(then === true && otherwise === true)) {
    const others = negate(condition, `${path}.if`).map((negation) => ({ allOf: [negation, otherwise] }));
    choices.push([{ allOf: [condition, then] }, ...others]);
  }
  for (const [name, names] of Object.entries(dependentRequired ?? {})) {
    if (!Array.isArray(names))
      return refuseStructuredOutput(`${path}.dependentRequired.${name} must be a list of names`);
    choices.push([without(name), { required: [name, ...(names as unknown[])] }]);
  }
  for (const [name, dependent] of Object.entries(dependentSchemas ?? {})) {
    choices.push([without(name), { allOf: [{ required: [name] }, dependent] }]);
  }
  return { rest, choices };
}

function without(name: string): JsonObject {
  return { properties: { [name]: false } };
}

/** The values that a schema does not allow. Throws EngineError `invalid_argument` for keywords that cannot be negated. */
export function negationOf(schema: unknown, path: string, context: ConditionContext): Choice {
  return new Negation(context).of(schema, path, MAX_NEGATED_LEVELS);
}

/** The values that a schema does not allow, as a choice. */
class Negation {
  readonly #context: ConditionContext;

  constructor(context: ConditionContext) {
    this.#context = context;
  }

  of(given: unknown, path: string, levelsLeft: number): Choice {
    this.#context.count(path);
    if (given === true) return [];
    if (given === false) return [{}];
    if (!isObject(given))
      return refuseStructuredOutput(`${path} must be a JSON Schema, which is an object or a boolean`);
    if (levelsLeft === 0) return refuseStructuredOutput(`${path} is nested too deeply to be negated`);
    const { not, ...others } = modernSchema(given);
    const { rest, choices } = divideConditions(others, path, this.#context, levelsLeft - 1);
    const keywords = Object.keys(rest).filter(
      (keyword) => rest[keyword] !== undefined && this.#context.isRestricting(keyword),
    );
    return [
      ...(not === undefined ? [] : [not]),
      ...keywords.flatMap((keyword) => this.#ofKeyword(keyword, rest[keyword], path, levelsLeft - 1)),
      ...choices.flatMap((choice) => this.#ofAll(choice, path, levelsLeft - 1)),
    ];
  }

  /** Each keyword says something about one type only, so its negation has that type. */
  #ofKeyword(keyword: string, operand: unknown, path: string, levelsLeft: number): Choice {
    const at = `${path}.${keyword}`;
    const bound = operand as number;
    switch (keyword) {
      case "type":
        return otherTypes(operand, at);
      case "const":
        return [{ not: { enum: [operand] } }];
      case "enum":
        return [{ not: { enum: operand } }];
      case "$ref":
        return this.of(this.#context.schemaAt(operand as string, path), operand as string, levelsLeft);
      case "allOf":
        return listOf(operand, at).flatMap((entry, index) => this.of(entry, `${at}.${index}`, levelsLeft));
      case "anyOf":
        return this.#ofAll(listOf(operand, at), at, levelsLeft);
      case "required":
        return listOf(operand, at).map((name) => ({ type: "object", properties: { [String(name)]: false } }));
      case "properties":
        return Object.entries(operand as JsonObject).flatMap(([name, schema]) =>
          this.of(schema, `${at}.${name}`, levelsLeft).map((negation) => ({
            type: "object",
            properties: { [name]: negation },
            required: [name],
          })),
        );
      case "minimum":
        return [{ type: "number", exclusiveMaximum: operand }];
      case "maximum":
        return [{ type: "number", exclusiveMinimum: operand }];
      case "exclusiveMinimum":
        return [{ type: "number", maximum: operand }];
      case "exclusiveMaximum":
        return [{ type: "number", minimum: operand }];
      case "pattern":
        return [{ type: "string", pattern: patternOfNone(String(operand)) }];
      case "minLength":
        return bound > 0 ? [{ type: "string", maxLength: bound - 1 }] : [];
      case "maxLength":
        return [{ type: "string", minLength: bound + 1 }];
      case "minItems":
        return bound > 0 ? [{ type: "array", maxItems: bound - 1 }] : [];
      case "maxItems":
        return [{ type: "array", minItems: bound + 1 }];
      case "minProperties":
        return bound > 0 ? [{ type: "object", maxProperties: bound - 1 }] : [];
      case "maxProperties":
        return [{ type: "object", minProperties: bound + 1 }];
      default:
        return refuseStructuredOutput(
          `${path} has the keyword ${keyword}, which is not supported within not and if; describe the other values instead`,
        );
    }
  }

  /** Not one of several schemas: the negations of all of them. */
  #ofAll(schemas: readonly unknown[], path: string, levelsLeft: number): Choice {
    const negations = schemas.map((schema, index) => this.of(schema, `${path}.${index}`, levelsLeft));
    return negations.some((negation) => negation.length === 0)
      ? []
      : [{ allOf: negations.map((anyOf) => (anyOf.length === 1 ? anyOf[0] : { anyOf })) }];
  }
}

function otherTypes(type: unknown, path: string): Choice {
  const types = Array.isArray(type) ? (type as unknown[]) : [type];
  if (types.includes("integer") && !types.includes("number")) {
    return refuseStructuredOutput(`${path} negates the type integer, which is not supported; use multipleOf or bounds`);
  }
  const others = allTypes.filter((name) => !types.includes(name));
  return others.length === 0 ? [] : [{ type: others }];
}

function listOf(operand: unknown, path: string): readonly unknown[] {
  return Array.isArray(operand) ? operand : refuseStructuredOutput(`${path} must be a list`);
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
