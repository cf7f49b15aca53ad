/**
 * Holds values to the schemas that platforms publish: discovery documents of Google, service models of AWS, and the
 * models of Azure's Python client. A field that a schema does not have is a problem, which those clients let pass.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";

import type { SchemaFile } from "../programs/platform-schemas.ts";

export type Schema =
  | { readonly kind: "any" | "boolean" | "integer" | "number" }
  | { readonly kind: "text"; readonly values?: readonly string[] | undefined }
  | { readonly kind: "list" | "map"; readonly of: () => Schema }
  | {
      readonly kind: "object";
      readonly fields: ReadonlyMap<string, () => Schema>;
      readonly required: readonly string[];
    };

/** Every place where the value does not match, by path; empty if it matches. */
export function problemsOf(value: unknown, schema: Schema, path = ""): string[] {
  const expected = (kind: string): string[] => [`${path}: expected ${kind}, got ${JSON.stringify(value)}`];
  switch (schema.kind) {
    case "any":
      return [];
    case "boolean":
      return typeof value === "boolean" ? [] : expected("a boolean");
    case "integer":
      return Number.isInteger(value) ? [] : expected("an integer");
    case "number":
      return typeof value === "number" ? [] : expected("a number");
    case "text":
      if (typeof value !== "string") return expected("a string");
      return schema.values?.includes(value) === false ? expected(`one of ${schema.values.join(", ")}`) : [];
    case "list":
      if (!Array.isArray(value)) return expected("a list");
      return value.flatMap((item, index) => problemsOf(item, schema.of(), `${path}[${index}]`));
    case "map":
      if (!isObject(value)) return expected("an object");
      return Object.entries(value).flatMap(([key, item]) => problemsOf(item, schema.of(), `${path}.${key}`));
    case "object": {
      if (!isObject(value)) return expected("an object");
      const missing = schema.required.filter((name) => value[name] === undefined);
      return [
        ...missing.map((name) => `${path}.${name}: missing`),
        ...Object.entries(value).flatMap(([name, item]) => {
          const field = schema.fields.get(name);
          return field === undefined ? [`${path}.${name}: unknown`] : problemsOf(item, field(), `${path}.${name}`);
        }),
      ];
    }
    default:
      return schema satisfies never;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

async function read(file: SchemaFile): Promise<Buffer> {
  return readFile(join(process.env.PLATFORM_SCHEMAS!, file));
}

interface DiscoverySchema {
  readonly $ref?: string;
  readonly type?: string;
  readonly enum?: readonly string[];
  readonly description?: string;
  readonly items?: DiscoverySchema;
  readonly properties?: Readonly<Record<string, DiscoverySchema>>;
  readonly additionalProperties?: DiscoverySchema;
}

/** Google's discovery documents have no list of required fields. */
export async function readDiscoveryDocument(file: SchemaFile & `${string}.v1.json`) {
  const text = (await read(file)).toString();
  const { schemas } = JSON.parse(text) as { readonly schemas: Readonly<Record<string, DiscoverySchema>> };
  const toSchema = (schema: DiscoverySchema): Schema => {
    const { $ref, type, items, properties, additionalProperties } = schema;
    if ($ref !== undefined) return toSchema(schemas[$ref]!);
    if (type === "array") return { kind: "list", of: () => toSchema(items!) };
    if (type === "string") return { kind: "text", values: schema.enum };
    if (type === "integer" || type === "number" || type === "boolean") return { kind: type };
    if (additionalProperties !== undefined) return { kind: "map", of: () => toSchema(additionalProperties) };
    if (properties === undefined) return { kind: "any" };
    const fields = Object.entries(properties).map(([name, field]) => [name, () => toSchema(field)] as const);
    return { kind: "object", fields: new Map(fields), required: [] };
  };
  return { text, schema: (name: string): Schema => toSchema({ $ref: name }) };
}

interface Shape {
  readonly type: string;
  readonly enum?: readonly string[];
  readonly required?: readonly string[];
  readonly members?: Readonly<Record<string, { readonly shape: string }>>;
  readonly member?: { readonly shape: string };
  readonly value?: { readonly shape: string };
}

/** The model of the service ECS, whose JSON has the names of its members. */
export async function readEcsModel(): Promise<(name: string) => Schema> {
  const { shapes } = JSON.parse(gunzipSync(await read("ecs.json.gz")).toString()) as {
    readonly shapes: Readonly<Record<string, Shape>>;
  };
  const schemaOf = (name: string): Schema => {
    const shape = shapes[name]!;
    switch (shape.type) {
      case "structure": {
        const fields = Object.entries(shape.members ?? {}).map(
          ([field, member]) => [field, () => schemaOf(member.shape)] as const,
        );
        return { kind: "object", fields: new Map(fields), required: shape.required ?? [] };
      }
      case "list":
        return { kind: "list", of: () => schemaOf(shape.member!.shape) };
      case "map":
        return { kind: "map", of: () => schemaOf(shape.value!.shape) };
      case "string":
        return { kind: "text", values: shape.enum };
      case "boolean":
        return { kind: "boolean" };
      case "integer":
      case "long":
        return { kind: "integer" };
      default:
        return { kind: "number" };
    }
  };
  return schemaOf;
}

const pythonKinds: Readonly<Record<string, Schema>> = {
  str: { kind: "text" },
  int: { kind: "integer" },
  float: { kind: "number" },
  bool: { kind: "boolean" },
};

/** The models of Azure Container Apps. A field that may not be None is required. */
export async function readContainerAppModels(): Promise<(name: string) => Schema> {
  const classes = new Map(
    (await read("container-apps.py"))
      .toString()
      .split(/^class /m)
      .slice(1)
      .map((body) => [/^\w+/.exec(body)![0], body]),
  );
  const toSchema = (annotation: string): Schema => {
    const bare = annotation.replace(/^Optional\[(.*)\]$/, "$1");
    const [, container, inner] = /^(list|dict)\[(?:str, )?(.*)\]$/.exec(bare) ?? [];
    if (inner !== undefined) return { kind: container === "list" ? "list" : "map", of: () => toSchema(inner) };
    const model = /^"_models\.(\w+)"$/.exec(bare)?.[1];
    if (model !== undefined) return schemaOf(model);
    return pythonKinds[/^Union\[(\w+), /.exec(bare)?.[1] ?? bare] ?? { kind: "any" };
  };
  const schemaOf = (name: string): Schema => {
    const fields = new Map<string, () => Schema>();
    const required: string[] = [];
    const body = classes.get(name);
    if (body === undefined) throw new Error(`Azure's models have no ${name}.`);
    const parent = /^\w+\((\w+)/.exec(body)?.[1] ?? "";
    const inherited = classes.has(parent) ? schemaOf(parent) : null;
    if (inherited?.kind === "object") {
      for (const [field, schema] of inherited.fields) fields.set(field, schema);
      required.push(...inherited.required);
    }
    for (const [, attribute, annotation, options] of body.matchAll(
      /^ {4}(\w+): (.+) = rest_field\(([^]*?)^ {4}(?:\)$|""")/gm,
    )) {
      const wireName = /name="(\w+)"/.exec(options!)?.[1] ?? attribute!;
      fields.set(wireName, () => toSchema(annotation!));
      if (!annotation!.startsWith("Optional[")) required.push(wireName);
    }
    return { kind: "object", fields, required };
  };
  return schemaOf;
}
