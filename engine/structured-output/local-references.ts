/** Writes references by `$id`, `$anchor` and `$dynamicAnchor` as references to places: `#/$defs/name`. */
import { refuseStructuredOutput } from "./refusal.ts";

/** Mutable while its references are written anew. */
type Schema = Record<string, unknown>;

/** A schema with an `$id`, or the whole one. */
interface Resource {
  readonly uri: string;
  readonly place: string;
}

interface Reference {
  readonly schema: Schema;
  readonly path: string;
  readonly resource: Resource;
}

/** Their values have names of properties and definitions, not keywords. */
const keywordsWithNames = new Set([
  "properties",
  "patternProperties",
  "$defs",
  "definitions",
  "dependentSchemas",
  "dependencies",
]);
/** Their values are data. */
const keywordsWithData = new Set(["const", "enum", "default", "examples", "example"]);
/** For schemas without a URI of their own. */
const defaultUri = "schema:/";

/**
 * Changes the references of a schema in place; its nesting is bounded. Throws EngineError `invalid_argument` for one that
 * leads out of the schema, and for a `$dynamicRef` or `$recursiveRef` whose target depends on the way to it.
 */
export function makeReferencesLocal(root: unknown): void {
  if (isObject(root)) new ReferenceWriter(root).write();
}

class ReferenceWriter {
  readonly #root: Schema;
  readonly #resources: Resource[] = [];
  /** By URI with fragment: its places. */
  readonly #anchors = new Map<string, string>();
  readonly #dynamicAnchors = new Map<string, string[]>();
  readonly #references: Reference[] = [];

  constructor(root: Schema) {
    this.#root = root;
  }

  write(): void {
    const whole: Resource = { uri: defaultUri, place: "" };
    this.#resources.push(whole);
    this.#collect(this.#root, "", "json", whole, false);
    for (const reference of this.#references) this.#rewrite(reference);
  }

  #collect(value: unknown, place: string, path: string, resource: Resource, isNames: boolean): void {
    if (Array.isArray(value)) {
      value.forEach((entry, index) => this.#collect(entry, `${place}/${index}`, `${path}.${index}`, resource, false));
      return;
    }
    if (!isObject(value)) return;
    const own = isNames ? resource : this.#identify(value, place, resource);
    if (!isNames && ["$ref", "$dynamicRef", "$recursiveRef"].some((keyword) => typeof value[keyword] === "string")) {
      this.#references.push({ schema: value, path, resource: own });
    }
    for (const [key, inner] of Object.entries(value)) {
      if (typeof inner !== "object" || (!isNames && keywordsWithData.has(key))) continue;
      const token = key.replaceAll("~", "~0").replaceAll("/", "~1");
      this.#collect(inner, `${place}/${token}`, `${path}.${key}`, own, !isNames && keywordsWithNames.has(key));
    }
  }

  /** Draft 4 has `id`; until draft 7, an `$id` with a fragment is an anchor. */
  #identify(schema: Schema, place: string, resource: Resource): Resource {
    const id = typeof schema.$id === "string" ? schema.$id : schema.id;
    const isAnchor = typeof id === "string" && id.startsWith("#");
    let own = resource;
    if (typeof id === "string" && !isAnchor && id !== "") {
      own = { uri: resolve(id.split("#")[0]!, resource.uri), place };
      this.#resources.push(own);
    }
    if (isAnchor && id !== "#") this.#anchors.set(`${own.uri}${id}`, place);
    for (const name of [schema.$anchor, schema.$dynamicAnchor]) {
      if (typeof name === "string") this.#anchors.set(`${own.uri}#${name}`, place);
    }
    const dynamic = schema.$recursiveAnchor === true ? "" : schema.$dynamicAnchor;
    if (typeof dynamic === "string") {
      const places = this.#dynamicAnchors.get(dynamic);
      if (places === undefined) this.#dynamicAnchors.set(dynamic, [place]);
      else places.push(place);
    }
    return own;
  }

  #rewrite({ schema, path, resource }: Reference): void {
    const { $ref, $dynamicRef, $recursiveRef } = schema;
    if (typeof $ref === "string") schema.$ref = this.#placeOf($ref, `${path}.$ref`, resource);
    const keyword = typeof $dynamicRef === "string" ? "$dynamicRef" : "$recursiveRef";
    const dynamic = $dynamicRef ?? $recursiveRef;
    if (typeof dynamic !== "string") return;
    const name = dynamic.split("#")[1] ?? "";
    if ((this.#dynamicAnchors.get(name)?.length ?? 0) > 1) {
      const several = keyword === "$dynamicRef" ? `$dynamicAnchor ${name}` : "$recursiveAnchor";
      refuseStructuredOutput(
        `${path} has the keyword ${keyword} beside more than one ${several}, which is not supported`,
      );
    }
    const place = this.#placeOf(dynamic, `${path}.${keyword}`, resource);
    delete schema[keyword];
    if (schema.$ref === undefined) schema.$ref = place;
    else schema.allOf = [...(Array.isArray(schema.allOf) ? (schema.allOf as unknown[]) : []), { $ref: place }];
  }

  /** As `#/…`. Places within a schema with an `$id` may also be places of the whole one, as many schemas mean them. */
  #placeOf(reference: string, path: string, resource: Resource): string {
    if (resource.place === "" && /^#(?:\/|$)/.test(reference)) return reference;
    const [given = "", fragment = ""] = reference.split("#");
    const uri = given === "" ? resource.uri : resolve(given, resource.uri);
    const found = this.#resources.findLast((other) => other.uri === uri);
    if (fragment === "" || fragment.startsWith("/")) {
      if (found !== undefined && this.#has(`${found.place}${fragment}`)) return `#${found.place}${fragment}`;
      if (given === "") return reference;
    }
    const anchor = this.#anchors.get(`${uri}#${fragment}`);
    if (anchor !== undefined) return `#${anchor}`;
    const problem = `is ${JSON.stringify(reference)}, which is not a place in this schema`;
    return refuseStructuredOutput(`${path} ${problem}: it must be # or start with #/, or name an $id or $anchor`);
  }

  #has(place: string): boolean {
    let value: unknown = this.#root;
    for (const token of place.split("/").slice(1)) {
      const name = token.replaceAll("~1", "/").replaceAll("~0", "~");
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) return false;
      value = (value as Schema)[name];
    }
    return true;
  }
}

/** References are compared with each other only, so one that is not a URL stays as it is. */
function resolve(reference: string, base: string): string {
  return URL.parse(reference, base)?.href ?? reference;
}

function isObject(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
