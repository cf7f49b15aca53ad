/**
 * `<|tool_call>call:search{query:<|"|>cats<|"|>,limit:3}<tool_call|>`, as Gemma 4 writes calls: keys are bare, and a
 * special token stands around strings. The models drift to JSON's and Python's strings, to `=` and to parentheses,
 * which are read too.
 */
import { lengthOfBegunMarker } from "../marker-search.ts";
import { readJson } from "../read-json.ts";
import { createReadingParser, emitUntil, peek, readWhile, skipSpace, tryRead } from "../text-source.ts";
import type { Reading, TextSource } from "../text-source.ts";
import type { ToolCallFormat } from "../tool-call-format.ts";
import { taggedCalls } from "./call-forms.ts";
import { readPythonLiteral } from "./python-literal.ts";

const startToken = "<|tool_call>";
const endToken = "<tool_call|>";
const quoteToken = '<|"|>';
const MAX_NAME_LENGTH = 256;
/** Characters of a value without quotes. */
const MAX_BARE_LENGTH = 4096;
/** Lists and objects around a value. The reader recurses over them. */
const MAX_DEPTH = 64;

export const gemma4Format: ToolCallFormat = {
  name: "gemma4",
  specialTokens: [startToken, endToken, quoteToken],
  createParser: () => createReadingParser(readCalls),
  // Not every schema has a form without JSON's quotes. The parser reads both.
  formOf: (tools, rules) =>
    taggedCalls(tools, rules, {
      trigger: startToken,
      before: (name) => `call:${name}`,
      after: endToken,
      between: "",
    }),
};

function* readCalls(source: TextSource): Reading<void> {
  while (true) {
    const found = yield* emitUntil(source, [startToken]);
    if (found === null) return;
    const start = source.position;
    if (yield* readCall(source)) {
      yield* skipSpace(source);
      yield* tryRead(source, endToken);
      yield* skipSpace(source);
    } else {
      source.position = start;
      source.emitText(found.space + startToken);
    }
  }
}

/** Returns false, with nothing emitted, if the text is no call. A call that breaks in its arguments ends there. */
function* readCall(source: TextSource): Reading<boolean> {
  yield* skipSpace(source);
  if ((yield* tryRead(source, "call:")) === null) return false;
  const name = yield* readWhile(source, /[\w.-]/, MAX_NAME_LENGTH);
  const opening = yield* tryRead(source, "{", "(");
  if (name === "" || opening === null) return false;
  source.emit({ type: "call", name });
  yield* readMembers(source, opening === "{" ? "}" : ")", 0);
  return true;
}

/** Emits the members of an object whose opening character is read. Returns false if they break. */
function* readMembers(source: TextSource, end: "}" | ")", depth: number): Reading<boolean> {
  if (depth > MAX_DEPTH) return false;
  source.emitArguments("{");
  for (let isFirst = true; ; isFirst = false) {
    yield* skipSpace(source);
    if ((yield* tryRead(source, end)) !== null) break;
    const key = yield* readKey(source);
    yield* skipSpace(source);
    if (key === null || (yield* tryRead(source, ":", "=")) === null) return false;
    source.emitArguments(`${isFirst ? "" : ", "}${key}: `);
    if (!(yield* readValue(source, depth))) return false;
    yield* skipSpace(source);
    if ((yield* tryRead(source, ",")) === null && (yield* peek(source)) !== end) return false;
  }
  source.emitArguments("}");
  return true;
}

/** Emits the elements of a list whose bracket is read. Returns false if they break. */
function* readElements(source: TextSource, depth: number): Reading<boolean> {
  if (depth > MAX_DEPTH) return false;
  source.emitArguments("[");
  for (let isFirst = true; ; isFirst = false) {
    yield* skipSpace(source);
    if ((yield* tryRead(source, "]")) !== null) break;
    if (!isFirst) source.emitArguments(", ");
    if (!(yield* readValue(source, depth))) return false;
    yield* skipSpace(source);
    if ((yield* tryRead(source, ",")) === null && (yield* peek(source)) !== "]") return false;
  }
  source.emitArguments("]");
  return true;
}

/** JSON text of the key; null if there is none. */
function* readKey(source: TextSource): Reading<string | null> {
  const next = yield* peek(source);
  if (next === "'") return yield* readPythonLiteral(source);
  if (next === '"') {
    let json = "";
    return (yield* readJson(source, (piece) => void (json += piece), true)) ? json : null;
  }
  const isQuoted = (yield* tryRead(source, quoteToken)) !== null;
  const key = yield* readWhile(source, /[^\s:=,{}[\]()<"']/, MAX_NAME_LENGTH);
  if (isQuoted && (yield* tryRead(source, quoteToken)) === null) return null;
  return key === "" ? null : JSON.stringify(key);
}

/** Emits the value as JSON, strings as they arrive. Returns false if it breaks. */
function* readValue(source: TextSource, depth: number): Reading<boolean> {
  yield* skipSpace(source);
  if ((yield* tryRead(source, quoteToken)) !== null) return yield* readQuoted(source);
  switch (yield* peek(source)) {
    case '"':
      return yield* readJson(source, (piece) => source.emitArguments(piece), true);
    case "{":
      source.position += 1;
      return yield* readMembers(source, "}", depth + 1);
    case "[":
      source.position += 1;
      return yield* readElements(source, depth + 1);
    case "'": {
      const json = yield* readPythonLiteral(source);
      source.emitArguments(json ?? "");
      return json !== null;
    }
    default: {
      const bare = (yield* readWhile(source, /[^,\]})<]/, MAX_BARE_LENGTH)).trim();
      source.emitArguments(bare === "" ? "" : toJson(bare));
      return bare !== "";
    }
  }
}

function* readQuoted(source: TextSource): Reading<boolean> {
  source.emitArguments('"');
  while (true) {
    const { text, position } = source;
    const end = text.indexOf(quoteToken, position);
    const pending = text.slice(position, end === -1 ? undefined : end);
    const numHeld = end === -1 ? lengthOfBegunMarker(pending, [quoteToken]) : 0;
    const settled = pending.slice(0, pending.length - numHeld);
    source.emitArguments(JSON.stringify(settled).slice(1, -1));
    source.position += settled.length + (end === -1 ? 0 : quoteToken.length);
    source.forget();
    if (end !== -1) {
      source.emitArguments('"');
      return true;
    }
    if (source.isComplete) return false;
    yield;
  }
}

/** Other languages' words for JSON's. */
const words: ReadonlyMap<string, string> = new Map([
  ["true", "true"],
  ["True", "true"],
  ["false", "false"],
  ["False", "false"],
  ["null", "null"],
  ["None", "null"],
]);

/** A text that is no number and no word of JSON is a string. */
function toJson(text: string): string {
  const isNumber = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(text);
  return words.get(text) ?? (isNumber ? text : JSON.stringify(text));
}
