/** Plausible JSON for a zod schema, so that a new field of a route is attacked without a change here. */
import * as fc from "fast-check";
import type { z } from "zod";

import { fromValue, Pairs } from "./json-tree.ts";
import type { Json } from "./json-tree.ts";

/** Maximum number of optional fields in a body: with all of them at once, nearly every body is rejected. */
const MAX_OPTIONAL_FIELDS = 4;

/** By field name: texts that pass its first check. Other fields get words. */
export type FieldTexts = Readonly<Record<string, readonly string[]>>;

/** The part of zod's definitions that is read here. */
interface Definition {
  readonly type: string;
  readonly innerType?: Schema;
  readonly shape?: Readonly<Record<string, Schema>>;
  readonly element?: Schema;
  readonly keyType?: Schema;
  readonly valueType?: Schema;
  readonly options?: readonly Schema[];
  readonly in?: Schema;
  readonly out?: Schema;
  readonly values?: readonly unknown[];
  readonly entries?: Readonly<Record<string, string>>;
}

interface Schema {
  readonly _zod: { readonly def: Definition };
}

/** Throws for an unknown kind of schema, which must be added. */
export function plausible(schema: z.core.$ZodType, texts: FieldTexts): fc.Arbitrary<Json> {
  return valueOf(schema, "", texts);
}

function valueOf({ _zod: { def } }: Schema, name: string, texts: FieldTexts): fc.Arbitrary<Json> {
  const inner = (schema: Schema | undefined, innerName = name): fc.Arbitrary<Json> =>
    valueOf(schema!, innerName, texts);
  switch (def.type) {
    case "object":
      return objectOf(def.shape!, texts);
    case "optional":
    case "nullable":
    case "default":
      return inner(def.innerType);
    case "string":
      return fc.constantFrom(...(texts[name] ?? ["a", "a red circle", "circle", "</s>"]));
    case "number":
      return fc.constantFrom(0, 1, 2, 3, 7, 0.5, 1.5, -1, 100);
    case "boolean":
      return fc.boolean();
    case "null":
    case "undefined":
      return fc.constant(null);
    case "literal":
      return fc.constantFrom(...def.values!.map(fromValue));
    case "enum":
      return fc.constantFrom(...Object.values(def.entries!));
    case "array":
      return fc.array(inner(def.element), { maxLength: 3 });
    case "record":
      return fc
        .array(fc.tuple(fc.constantFrom("1", "7", "a", "size", "type"), inner(def.valueType)), { maxLength: 3 })
        .map((entries) => new Pairs(entries));
    case "union":
      return fc.oneof(...def.options!.map((option) => inner(option)));
    case "pipe":
      return inner(def.in!._zod.def.type === "transform" ? def.out : def.in);
    case "unknown":
    case "any":
      return fc.constantFrom(...[null, true, 1, "a", [], {}, { type: "string" }].map(fromValue));
    default:
      throw new Error(`The field ${name} has a zod schema of type ${def.type}, which this does not know.`);
  }
}

function objectOf(shape: Readonly<Record<string, Schema>>, texts: FieldTexts): fc.Arbitrary<Json> {
  const fields = Object.entries(shape).map(([name, schema]) => ({
    isRequired: schema._zod.def.type !== "optional" && schema._zod.def.type !== "default",
    entry: valueOf(schema, name, texts).map((value) => [name, value] as const),
  }));
  const required = fc.tuple(...fields.filter(({ isRequired }) => isRequired).map(({ entry }) => entry));
  const optional = fields.filter(({ isRequired }) => !isRequired).map(({ entry }) => entry);
  const chosen =
    optional.length === 0 ? fc.constant([]) : fc.array(fc.oneof(...optional), { maxLength: MAX_OPTIONAL_FIELDS });
  return fc.tuple(required, chosen).map(([first, more]) => new Pairs([...first, ...more]));
}
