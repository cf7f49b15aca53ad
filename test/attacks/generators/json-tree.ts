/**
 * JSON as a tree that can represent more than JavaScript values: duplicate keys, numbers beyond all types, lazily
 * created megabytes.
 */

/** Text that is inserted into the JSON unchanged and created only when it is sent. */
export class RawJson {
  /** Its name in reports: `a list of 100000 × -1`. */
  readonly name: string;
  readonly write: () => string;

  constructor(name: string, write: () => string) {
    this.name = name;
    this.write = write;
  }
}

/** An object with ordered keys; a key may occur twice and may be `__proto__`. */
export class Pairs {
  readonly entries: readonly (readonly [string, Json])[];

  constructor(entries: readonly (readonly [string, Json])[]) {
    this.entries = entries;
  }
}

export type Json = null | boolean | number | string | readonly Json[] | Pairs | RawJson;

export function writeJson(json: Json): string {
  if (json instanceof RawJson) return json.write();
  if (json instanceof Pairs) {
    return `{${json.entries.map(([key, value]) => `${JSON.stringify(key)}:${writeJson(value)}`).join()}}`;
  }
  if (Array.isArray(json)) return `[${(json as readonly Json[]).map(writeJson).join()}]`;
  return JSON.stringify(json);
}

/** The same with names in place of raw texts, for reports. */
export function showJson(json: Json): string {
  if (json instanceof RawJson) return `‹${json.name}›`;
  if (json instanceof Pairs) {
    return `{${json.entries.map(([key, value]) => `${JSON.stringify(key)}:${showJson(value)}`).join()}}`;
  }
  if (Array.isArray(json)) return `[${(json as readonly Json[]).map(showJson).join()}]`;
  const text = JSON.stringify(json);
  return text.length > 200 ? `${text.slice(0, 100)}…(${text.length})` : text;
}

export function fromValue(value: unknown): Json {
  if (Array.isArray(value)) return value.map(fromValue);
  if (typeof value !== "object" || value === null) return value as Json;
  return new Pairs(Object.entries(value).map(([key, inner]) => [key, fromValue(inner)]));
}

/** Places of the tree as keys and indexes from the root, root first. */
export function pathsOf(json: Json, path: readonly (string | number)[] = []): (readonly (string | number)[])[] {
  const below = (inner: Json, key: string | number) => pathsOf(inner, [...path, key]);
  if (json instanceof Pairs) return [path, ...json.entries.flatMap(([, value], index) => below(value, index))];
  if (Array.isArray(json)) return [path, ...(json as readonly Json[]).flatMap((value, index) => below(value, index))];
  return [path];
}

/** The tree with other values at one place: an empty list removes it, several repeat the key or element. */
export function changeAt(
  json: Json,
  [key, ...rest]: readonly (string | number)[],
  change: (json: Json) => readonly Json[],
): Json {
  if (key === undefined) return change(json)[0] ?? null;
  const changeHere = (value: Json): readonly Json[] =>
    rest.length === 0 ? change(value) : [changeAt(value, rest, change)];
  if (json instanceof Pairs) {
    return new Pairs(
      json.entries.flatMap(([name, value], index) =>
        index === key ? changeHere(value).map((changed) => [name, changed] as const) : [[name, value] as const],
      ),
    );
  }
  return (json as readonly Json[]).flatMap((value, index) => (index === key ? changeHere(value) : [value]));
}
