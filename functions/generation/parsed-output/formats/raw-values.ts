/** Values between tags, for formats in which they are raw text and the tool's schema says which of them are no strings. */
import type { JsonObject } from "../../../../engine/index.ts";
import { lengthOfBegunMarker } from "../marker-search.ts";
import { tryRead } from "../text-source.ts";
import type { Reading, TextSource } from "../text-source.ts";
import { isPythonWord, parseLoosely, typeNameOf } from "./schema-types.ts";

/** Of the JSON Schema of a tool's arguments. */
export function propertiesOf({ properties }: JsonObject): JsonObject {
  return typeof properties === "object" && properties !== null ? (properties as JsonObject) : {};
}

export interface ValueEnds {
  /** The tag after the value. */
  readonly end: string;
  /** What belongs to the tags if the value begins or ends with it; "" for nothing. */
  readonly lineBreak: string;
}

/**
 * Emits the value as JSON: strings as they arrive, others once they are complete. Returns false if the text ends within
 * the value.
 *
 * @param types Those that the schema allows; empty if it does not say, which means a string.
 */
export function* readRawValue(
  source: TextSource,
  types: ReadonlySet<string>,
  { end: endTag, lineBreak }: ValueEnds,
): Reading<boolean> {
  const isText = types.size === 0 || (types.size === 1 && types.has("string"));
  if (lineBreak !== "") yield* tryRead(source, lineBreak);
  let value = "";
  if (isText) source.emitArguments('"');
  while (true) {
    const { text, position } = source;
    const end = text.indexOf(endTag, position);
    const pending = text.slice(position, end === -1 ? undefined : end);
    const isWhole = end !== -1;
    const numHeld = isWhole ? 0 : lengthOfBegunMarker(pending, [lineBreak + endTag, endTag]);
    const isBroken = isWhole && lineBreak !== "" && pending.endsWith(lineBreak);
    const settled = pending.slice(0, pending.length - (isBroken ? lineBreak.length : numHeld));
    if (isText) source.emitArguments(JSON.stringify(settled).slice(1, -1));
    else value += settled;
    source.position += isWhole ? pending.length + endTag.length : settled.length;
    source.forget();
    if (isWhole) {
      source.emitArguments(isText ? '"' : toJson(value, types));
      return true;
    }
    if (source.isComplete) return false;
    yield;
  }
}

/** A value whose type the schema does not allow is a string. */
function toJson(text: string, types: ReadonlySet<string>): string {
  const trimmed = text.trim();
  const value = parseLoosely(trimmed);
  if (value !== undefined) {
    const type = typeNameOf(value);
    // JSON stays as it is, so that no digit of a long number is lost.
    if (types.has(type) || (type === "integer" && types.has("number")))
      return isPythonWord(trimmed) ? JSON.stringify(value) : trimmed;
  }
  return JSON.stringify(text);
}
