/**
 * Finds every place of a wire schema that accepts a value, by walking the schema itself, so that it also finds new
 * fields.
 */
import { z } from "zod";

export interface SchemaField {
  /** For example `messages[].content[].text`. Variants of a union have equal paths. */
  readonly path: string;
  /** Returns a body that is valid, except perhaps for `value` in this place, and has no other optional field. */
  readonly bodyWith: (value: unknown) => unknown;
}

/**
 * By schema; the first field is the body itself. A schema that several variants of a union, or several of `schemas`,
 * have in the same place is listed once. Throws for an unknown type of schema.
 */
export function fieldsOf(...schemas: readonly z.ZodType[]): SchemaField[][] {
  const seen = new Map<string, Set<z.core.$ZodType>>();
  const isNew: IsNew = (path, schema) => {
    const found = seen.get(path) ?? new Set();
    seen.set(path, found);
    return found.size < found.add(schema).size;
  };
  return schemas.map((schema) => walk(schema, "", (value) => value, isNew));
}

type IsNew = (path: string, schema: z.core.$ZodType) => boolean;
type BodyWith = (value: unknown) => unknown;

function walk(schema: z.core.$ZodType, path: string, bodyWith: BodyWith, isNew: IsNew): SchemaField[] {
  if (!isNew(path, schema)) return [];
  const field: SchemaField = { path, bodyWith };
  const element = elementOf(schema);
  if (element !== null) return [field, ...walk(element, `${path}[]`, (value) => bodyWith([value]), isNew)];
  const def = defOf(schema);
  switch (def.type) {
    case "optional":
    case "nullable":
      return walk(def.innerType, path, bodyWith, isNew);
    case "pipe":
      return walk(outerOf(def), path, bodyWith, isNew);
    case "union":
      return def.options.flatMap((option) => walk(option, path, bodyWith, isNew));
    case "record":
      return [field, ...walk(def.valueType, `${path}.*`, (value) => bodyWith({ a: value }), isNew)];
    case "object":
      return [
        field,
        ...Object.entries(def.shape).flatMap(([name, member]) =>
          walk(
            member,
            path === "" ? name : `${path}.${name}`,
            (value) => bodyWith({ ...(exampleOf(schema) as object), [name]: value }),
            isNew,
          ),
        ),
      ];
    case "string":
    case "number":
    case "boolean":
    case "literal":
    case "enum":
    case "null":
    case "unknown":
      return [field];
  }
}

/** The smallest valid value. */
function exampleOf(schema: z.core.$ZodType): unknown {
  const element = elementOf(schema);
  if (element !== null) return [exampleOf(element)];
  const def = defOf(schema);
  switch (def.type) {
    case "optional":
    case "nullable":
    case "null":
    case "unknown":
      return null;
    case "pipe":
      return exampleOf(outerOf(def));
    case "union":
      return exampleOf(def.options[0]!);
    case "record":
      return {};
    case "object":
      return Object.fromEntries(
        Object.entries(def.shape)
          .filter(([, member]) => !z.safeParse(member, undefined).success)
          .map(([name, member]) => [name, exampleOf(member)]),
      );
    case "string":
      return "a";
    case "number":
      return 1;
    case "boolean":
      return true;
    case "literal":
      return def.values[0];
    case "enum":
      return Object.values(def.entries)[0];
  }
}

/** Without lists, which `elementOf` finds. */
const knownTypes = [
  "boolean",
  "enum",
  "literal",
  "null",
  "nullable",
  "number",
  "object",
  "optional",
  "pipe",
  "record",
  "string",
  "union",
  "unknown",
] as const;
type KnownDef = Extract<z.core.$ZodTypes["_zod"]["def"], { readonly type: (typeof knownTypes)[number] }>;

function defOf(schema: z.core.$ZodType): KnownDef {
  const { def } = (schema as z.core.$ZodTypes)._zod;
  if (knownTypes.some((type) => type === def.type)) return def as KnownDef;
  throw new Error(`A schema of type ${def.type} is not known here: say how it is walked.`);
}

/** Null if the schema is not a list. */
function elementOf(schema: z.core.$ZodType): z.core.$ZodType | null {
  const { elementOfList } = (z.globalRegistry.get(schema) ?? {}) as { readonly elementOfList?: z.core.$ZodType };
  const { def } = (schema as z.core.$ZodTypes)._zod;
  return elementOfList ?? (def.type === "array" ? def.element : null);
}

/** Returns the schema of a pipe that describes the input. The other one only transforms it. */
function outerOf({ in: first, out: second }: z.core.$ZodPipeDef): z.core.$ZodType {
  const { type } = (first as z.core.$ZodTypes)._zod.def;
  return type === "transform" || type === "unknown" ? second : first;
}
