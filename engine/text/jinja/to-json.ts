/** The filter `tojson` as transformers defines it: Python's `json.dumps` without escapes for HTML. */
import { Float, floatText, isDict, isList, JinjaError, represent, tryNumber, Tuple, typeName } from "./values.ts";
import type { Dict, Value } from "./values.ts";

export interface JsonOptions {
  readonly ensureAscii: boolean;
  /** Text of one level; null for one line. */
  readonly indent: string | null;
  readonly itemSeparator: string;
  readonly keySeparator: string;
  readonly sortsKeys: boolean;
}

export function toJson(value: Value, options: JsonOptions, lineBreak = "\n"): string {
  if (value === null) return "null";
  if (typeof value === "boolean") return String(value);
  if (typeof value === "number" || typeof value === "bigint") return represent(value);
  if (value instanceof Float) return floatJson(value.value);
  if (typeof value === "string") return textJson(value, options);
  const inner = options.indent === null ? "" : lineBreak + options.indent;
  const outer = options.indent === null ? "" : lineBreak;
  const nested = (item: Value): string => toJson(item, options, inner);
  if (isList(value) || value instanceof Tuple) {
    const items = isList(value) ? value : value.items;
    return items.length === 0 ? "[]" : `[${inner}${items.map(nested).join(options.itemSeparator + inner)}${outer}]`;
  }
  if (!isDict(value)) throw new JinjaError(`Object of type ${typeName(value)} is not JSON serializable`);
  const members = entriesOf(value, options).map(
    ([key, member]) => `${textJson(key, options)}${options.keySeparator}${nested(member)}`,
  );
  return members.length === 0 ? "{}" : `{${inner}${members.join(options.itemSeparator + inner)}${outer}}`;
}

function entriesOf(dict: Dict, { sortsKeys }: JsonOptions): [string, Value][] {
  const entries = Array.from(dict, ([key, member]): [string, Value] => [keyText(key as Value), member]);
  return sortsKeys ? entries.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)) : entries;
}

function keyText(key: Value): string {
  if (typeof key === "string") return key;
  if (key === null || tryNumber(key) !== null) return toJson(key, { ensureAscii: false } as JsonOptions);
  throw new JinjaError(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
}

function floatJson(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Infinity" : "-Infinity";
  return floatText(value);
}

/** Without the characters for private use, with which prompts are marked. */
const notAscii = /[\x7f-\udfff\uf900-\uffff]/g;

function textJson(text: string, { ensureAscii }: JsonOptions): string {
  const json = JSON.stringify(text);
  if (!ensureAscii) return json;
  return json.replace(notAscii, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
