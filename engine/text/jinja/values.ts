/** Values of a Jinja template, which behave like Python's. */

import { JsonFloat, JsonInteger } from "../../contract/tools.ts";

/** An integer is a number; a string counts code points. */
export type Value =
  | null
  | boolean
  | string
  | number
  | Float
  /** An int that a number would round. Comparisons and arithmetic round it. */
  | bigint
  | Undefined
  | readonly Value[]
  | Tuple
  | Dict
  | Lazy
  | Namespace
  | Callable;

/** Python's dict. Keys are those of `dictKey`. */
export type Dict = Map<unknown, Value>;

/** Thrown for what Jinja or Python does not allow. */
export class JinjaError extends Error {}

export class Float {
  readonly value: number;
  constructor(value: number) {
    this.value = value;
  }
}

/** Printed as nothing, empty in loops and false in conditions; everything else that is done with it fails. */
export class Undefined {
  readonly #what: string;
  constructor(what: string) {
    this.#what = what;
  }
  error(): JinjaError {
    return new JinjaError(`${this.#what} is undefined`);
  }
}

export class Tuple {
  readonly items: readonly Value[];
  constructor(items: readonly Value[]) {
    this.items = items;
  }
}

/** A generator or a view of a dict: has items, but neither indexes nor the methods of a list. */
export class Lazy {
  readonly items: readonly Value[];
  /** Python's name of a view, which has a length; null for a generator, which has none and is always true. */
  readonly view: string | null;
  constructor(items: readonly Value[], view: string | null = null) {
    this.items = items;
    this.view = view;
  }
}

export class Namespace {
  readonly members: Map<string, Value>;
  /** Of the variable `loop`, which can be called. */
  readonly callable: Callable | null;
  constructor(members: Map<string, Value>, callable: Callable | null = null) {
    this.members = members;
    this.callable = callable;
  }
}

export class Callable {
  readonly name: string;
  readonly call: (args: readonly Value[], keywords: ReadonlyMap<string, Value>) => Value;
  constructor(name: string, call: Callable["call"]) {
    this.name = name;
    this.call = call;
  }
}

export function isDict(value: Value): value is Dict {
  return value instanceof Map;
}

export function isList(value: Value): value is readonly Value[] {
  return Array.isArray(value);
}

/** The value of plain data, such as a message. Members that are undefined are left out. */
export function toValue(data: unknown): Value {
  if (data === null || typeof data === "boolean" || typeof data === "string") return data;
  if (typeof data === "number") return Number.isInteger(data) ? data : new Float(data);
  if (Array.isArray(data)) return data.map(toValue);
  if (data instanceof Callable) return data;
  if (data instanceof JsonFloat) return new Float(data.value);
  if (data instanceof JsonInteger) return data.value;
  if (typeof data !== "object") throw new JinjaError(`a template cannot use a ${typeof data}`);
  const dict: Dict = new Map();
  for (const [key, member] of Object.entries(data)) if (member !== undefined) dict.set(key, toValue(member));
  return dict;
}

/** Numbers that are equal are the same key: `1`, `1.0` and `true`. */
export function dictKey(key: Value): unknown {
  if (key instanceof Float) return key.value;
  if (typeof key === "boolean") return Number(key);
  if (key === null || typeof key === "string" || typeof key === "number" || typeof key === "bigint") return key;
  if (key instanceof Tuple) return represent(key);
  throw new JinjaError(`unhashable type: '${typeName(key)}'`);
}

export function isTrue(value: Value): boolean {
  if (value === null || typeof value === "boolean" || typeof value === "string" || typeof value === "number") {
    return Boolean(value);
  }
  if (typeof value === "bigint") return value !== 0n;
  if (value instanceof Float) return value.value !== 0;
  if (value instanceof Undefined) return false;
  if (isList(value)) return value.length > 0;
  if (value instanceof Tuple) return value.items.length > 0;
  if (isDict(value)) return value.size > 0;
  return !(value instanceof Lazy) || value.view === null || value.items.length > 0;
}

/** The items of anything that Python iterates over; null for other values. */
export function tryItems(value: Value): readonly Value[] | null {
  if (isList(value)) return value;
  if (value instanceof Tuple || value instanceof Lazy) return value.items;
  if (typeof value === "string") return Array.from(value);
  if (isDict(value)) return keysOf(value);
  return value instanceof Undefined ? [] : null;
}

export function itemsOf(value: Value): readonly Value[] {
  const items = tryItems(value);
  if (items === null) throw new JinjaError(`'${typeName(value)}' object is not iterable`);
  return items;
}

export function keysOf(dict: Dict): Value[] {
  return [...dict.keys()] as Value[];
}

export function pairsOf(dict: Dict): Tuple[] {
  return Array.from(dict, ([key, value]) => new Tuple([key as Value, value]));
}

export function lengthOf(value: Value): number {
  if (typeof value === "string") return countCodePoints(value);
  const isGenerator = value instanceof Lazy && value.view === null;
  const items = isGenerator ? null : tryItems(value);
  if (items === null) throw new JinjaError(`object of type '${typeName(value)}' has no len()`);
  return items.length;
}

function countCodePoints(text: string): number {
  let count = text.length;
  for (let index = 1; index < text.length; index++) {
    const isPair = (text.charCodeAt(index) & 0xfc00) === 0xdc00 && (text.charCodeAt(index - 1) & 0xfc00) === 0xd800;
    if (isPair) count -= 1;
  }
  return count;
}

/** The number of an int, a bool or a float; null for other values. */
export function tryNumber(value: Value): number | null {
  if (typeof value === "number") return value;
  if (typeof value === "boolean" || typeof value === "bigint") return Number(value);
  return value instanceof Float ? value.value : null;
}

export function areEqual(left: Value, right: Value): boolean {
  if (left === right) return true;
  if (typeof left === "bigint" && typeof right === "bigint") return false;
  const [a, b] = [tryNumber(left), tryNumber(right)];
  if (a !== null || b !== null) return a === b;
  if (left instanceof Undefined) return right instanceof Undefined;
  if (isList(left)) return isList(right) && areItemsEqual(left, right);
  if (left instanceof Tuple) return right instanceof Tuple && areItemsEqual(left.items, right.items);
  if (!isDict(left) || !isDict(right) || left.size !== right.size) return false;
  for (const [key, value] of left) {
    const other = right.get(key);
    if (other === undefined || !areEqual(value, other)) return false;
  }
  return true;
}

function areItemsEqual(left: readonly Value[], right: readonly Value[]): boolean {
  return left.length === right.length && left.every((item, index) => areEqual(item, right[index]!));
}

/** Negative, 0 or positive, as for numbers, strings (by code point), lists and tuples in Python. */
export function compare(left: Value, right: Value): number {
  const [a, b] = [tryNumber(left), tryNumber(right)];
  if (a !== null && b !== null) return a - b;
  if (typeof left === "string" && typeof right === "string")
    return compareItems(Array.from(left), Array.from(right), byCodePoint);
  if (isList(left) && isList(right)) return compareItems(left, right, compare);
  if (left instanceof Tuple && right instanceof Tuple) return compareItems(left.items, right.items, compare);
  if (left instanceof Undefined) throw left.error();
  if (right instanceof Undefined) throw right.error();
  throw new JinjaError(`'<' not supported between instances of '${typeName(left)}' and '${typeName(right)}'`);
}

function byCodePoint(left: string, right: string): number {
  return left.codePointAt(0)! - right.codePointAt(0)!;
}

function compareItems<Item>(
  left: readonly Item[],
  right: readonly Item[],
  compareItem: (a: Item, b: Item) => number,
): number {
  for (const [index, item] of left.entries()) {
    if (index >= right.length) return 1;
    const order = compareItem(item, right[index]!);
    if (order !== 0) return order;
  }
  return left.length - right.length;
}

export function typeName(value: Value): string {
  if (value === null) return "NoneType";
  if (typeof value === "boolean") return "bool";
  if (typeof value === "string") return "str";
  if (typeof value === "number" || typeof value === "bigint") return "int";
  if (value instanceof Float) return "float";
  if (value instanceof Undefined) return "Undefined";
  if (isList(value)) return "list";
  if (value instanceof Tuple) return "tuple";
  if (isDict(value)) return "dict";
  if (value instanceof Lazy) return value.view ?? "generator";
  return value instanceof Namespace ? "Namespace" : "function";
}

/** Python's `str`. */
export function asText(value: Value): string {
  if (typeof value === "string") return value;
  return value instanceof Undefined ? "" : represent(value);
}

/** Python's `repr`. */
export function represent(value: Value): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return Number.isSafeInteger(value) ? String(value) : String(BigInt(value));
  if (typeof value === "bigint") return String(value);
  if (value instanceof Float) return floatText(value.value);
  if (typeof value === "string") return quoted(value);
  if (value instanceof Undefined) return "Undefined";
  if (isList(value)) return `[${value.map(represent).join(", ")}]`;
  if (value instanceof Tuple) return `(${value.items.map(represent).join(", ")}${value.items.length === 1 ? "," : ""})`;
  if (isDict(value)) {
    return `{${Array.from(value, ([key, member]) => `${represent(key as Value)}: ${represent(member)}`).join(", ")}}`;
  }
  if (value instanceof Lazy)
    return value.view === null ? "<generator>" : `${value.view}([${value.items.map(represent).join(", ")}])`;
  return value instanceof Namespace ? `<Namespace ${represent(new Map(value.members))}>` : `<function ${value.name}>`;
}

/** Python's shortest spelling, with an exponent below 1e-4 and from 1e16 on. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (Object.is(value, -0)) return "-0.0";
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-4 || size >= 1e16)) {
    const [digits = "", exponent = "0"] = value.toExponential().split("e");
    const sign = exponent.startsWith("-") ? "-" : "+";
    return `${digits}e${sign}${exponent.replace(/^[+-]/, "").padStart(2, "0")}`;
  }
  const text = String(value);
  return Number.isInteger(value) ? `${text}.0` : text;
}

/**
 * Characters that Python's `repr` writes as they are, and those for private use: a prompt is marked with one of them
 * where the spelling of a placeholder means no picture.
 */
const isPrintable = /^[^\p{Cc}\p{Cf}\p{Cs}\p{Cn}\p{Zl}\p{Zp}\p{Zs}]$/u;
const namedEscapes: Readonly<Record<string, string>> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  let result = quote;
  for (const character of text) {
    if (character === quote) result += `\\${quote}`;
    else
      result +=
        namedEscapes[character] ?? (character === " " || isPrintable.test(character) ? character : escape(character));
  }
  return result + quote;
}

function escape(character: string): string {
  const code = character.codePointAt(0)!;
  const digits = code.toString(16);
  if (code < 0x100) return `\\x${digits.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
}
