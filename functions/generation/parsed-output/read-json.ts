/** Reads JSON values and JSON calls from text that arrives in pieces. */
import { JsonScanner } from "./json-scanner.ts";
import { peek, skipSpace, tryRead } from "./text-source.ts";
import type { Reading, TextSource } from "./text-source.ts";

/**
 * Reads one JSON value and gives its text to `take` in pieces, with control characters in strings escaped: models write
 * them now and then. Returns false if the text breaks; the value up to there is read.
 *
 * @param isSettled Whether the pieces are final: the reader cannot go back behind them.
 */
export function* readJson(source: TextSource, take: (piece: string) => void, isSettled: boolean): Reading<boolean> {
  const scanner = new JsonScanner();
  while (true) {
    const { length } = source.text;
    let piece = "";
    for (let position = source.position; position < length; position++) {
      const char = source.charAt(position);
      const isInString = scanner.isInString;
      const scanned = scanner.next(char);
      if (scanned === "before" || scanned === "broken") {
        source.position = position;
        take(piece);
        return scanned === "before";
      }
      piece += isInString && char < " " ? JSON.stringify(char).slice(1, -1) : char;
      if (scanned === "done") {
        source.position = position + 1;
        take(piece);
        return true;
      }
    }
    source.position = length;
    take(piece);
    if (source.isComplete) return scanner.next(" ") === "before";
    if (isSettled) source.forget();
    yield;
  }
}

/** The value's text; null if it is broken or incomplete. */
function* readWholeJson(source: TextSource): Reading<string | null> {
  let text = "";
  const isWhole = yield* readJson(source, (piece) => void (text += piece), false);
  return isWhole ? text : null;
}

export interface JsonCallOptions {
  /** Whether the name may be that of a tool. */
  readonly isName: (name: string) => boolean;
  /** Whether a call without arguments counts. */
  readonly needsArguments: boolean;
}

/**
 * Reads a call like `{"name": "search", "arguments": {"query": "cats"}}`, with `parameters` as another name for the
 * arguments, and other members ignored. Arguments after the name are emitted as they arrive. Returns false, with nothing
 * emitted, if the text is no such call. A call that breaks in or after its arguments ends there.
 */
export function* readJsonCall(source: TextSource, { isName, needsArguments }: JsonCallOptions): Reading<boolean> {
  if ((yield* peek(source)) !== "{") return false;
  source.position += 1;
  let name: string | null = null;
  /** Arguments that came before the name. */
  let held: string | null = null;
  let isEmitted = false;
  const emitCall = (): void => {
    source.emit({ type: "call", name: name! });
    isEmitted = true;
  };
  while (true) {
    yield* skipSpace(source);
    const key = yield* readString(source);
    if (key === null) break;
    yield* skipSpace(source);
    if ((yield* peek(source)) !== ":") break;
    source.position += 1;
    yield* skipSpace(source);
    if (key === "name" && name === null) {
      const value = yield* readString(source);
      if (value === null || !isName(value)) return isEmitted;
      name = value;
      if (held !== null) {
        emitCall();
        source.emitArguments(held);
      }
    } else if ((key === "arguments" || key === "parameters") && !isEmitted && held === null) {
      if (name !== null && (yield* peek(source)) === "{") {
        emitCall();
        if (!(yield* readJson(source, (piece) => source.emitArguments(piece), true))) return true;
      } else {
        held = objectText(yield* readWholeJson(source));
        if (held === null) break;
        if (name !== null) {
          emitCall();
          source.emitArguments(held);
        }
      }
    } else if ((yield* readWholeJson(source)) === null) break;
    yield* skipSpace(source);
    const separator = yield* peek(source);
    if (separator !== "," && separator !== "}") break;
    source.position += 1;
    if (separator === ",") continue;
    if (isEmitted) return true;
    if (name === null || needsArguments) return false;
    emitCall();
    source.emitArguments("{}");
    return true;
  }
  return isEmitted;
}

/**
 * Reads a list of such calls, whose `[` is next. Returns false, with nothing emitted, if it begins with no call. One that
 * breaks later ends there.
 */
export function* readJsonCallList(source: TextSource): Reading<boolean> {
  source.position += 1;
  for (let isFirst = true; ; isFirst = false) {
    yield* skipSpace(source);
    const start = source.position;
    if (!(yield* readJsonCall(source, { isName: (name) => name !== "", needsArguments: false }))) {
      if (!isFirst) source.position = start;
      return !isFirst;
    }
    yield* skipSpace(source);
    if ((yield* tryRead(source, ",")) === null) break;
  }
  yield* tryRead(source, "]");
  return true;
}

/** The decoded string; null if there is none. */
function* readString(source: TextSource): Reading<string | null> {
  if ((yield* peek(source)) !== '"') return null;
  const text = yield* readWholeJson(source);
  return text === null ? null : (JSON.parse(text) as string);
}

/** Some models write the arguments as a string with JSON in it, or null for none. */
function objectText(json: string | null): string | null {
  if (json === null || json.startsWith("{")) return json;
  if (json === "null") return "{}";
  if (!json.startsWith('"')) return null;
  const text = (JSON.parse(json) as string).trim();
  return isJsonObject(text) ? text : null;
}

function isJsonObject(text: string): boolean {
  try {
    return text.startsWith("{") && typeof JSON.parse(text) === "object";
  } catch {
    return false;
  }
}
