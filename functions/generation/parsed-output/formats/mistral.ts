/**
 * Mistral's calls after the special token `[TOOL_CALLS]`: a JSON list of calls up to version 7 of its tokenizer, and
 * `name[ARGS]{…}`, with the token before each call, since version 11.
 */
import { randomInt } from "node:crypto";

import { readJson, readJsonCallList } from "../read-json.ts";
import { createReadingParser, emitUntil, peek, readWhile, skipSpace, tryRead } from "../text-source.ts";
import type { Reading, TextSource } from "../text-source.ts";
import type { CallRules, ToolCallFormat } from "../tool-call-format.ts";
import { listedCalls, taggedCalls } from "./call-forms.ts";

const startToken = "[TOOL_CALLS]";
const argumentsToken = "[ARGS]";
const callIdToken = "[CALL_ID]";
const MAX_NAME_LENGTH = 256;
const MAX_ID_LENGTH = 64;

const idCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const ID_LENGTH = 9;

const base = {
  specialTokens: [startToken, argumentsToken, callIdToken],
  createParser: () => createReadingParser(readCalls),
  // The chat templates reject other ids.
  createCallId: () => Array.from({ length: ID_LENGTH }, () => idCharacters[randomInt(idCharacters.length)]).join(""),
};

/** Both forms are read. Constrained calls have the form of the list. */
export const mistralFormat: ToolCallFormat = {
  ...base,
  name: "mistral",
  formOf: (tools, rules) =>
    listedCalls(tools, rules, {
      start: startToken,
      before: (name) => `{"name": ${JSON.stringify(name)}, "arguments": `,
      after: "}",
    }),
};

/** Both forms are read. Constrained calls have the form `name[ARGS]{…}`. */
export const mistralV11Format: ToolCallFormat = {
  ...base,
  name: "mistral_v11",
  formOf: (tools, rules: CallRules) =>
    taggedCalls(tools, rules, {
      trigger: startToken,
      before: (name) => `${name}${argumentsToken}`,
      after: "",
      between: "",
    }),
};

function* readCalls(source: TextSource): Reading<void> {
  while (true) {
    const found = yield* emitUntil(source, [startToken]);
    if (found === null) return;
    const start = source.position;
    yield* skipSpace(source);
    const isCall = (yield* peek(source)) === "[" ? yield* readJsonCallList(source) : yield* readNamedCall(source);
    if (isCall) {
      yield* skipSpace(source);
    } else {
      source.position = start;
      source.emitText(found.space + startToken);
    }
  }
}

function* readNamedCall(source: TextSource): Reading<boolean> {
  const name = yield* readWhile(source, /[\w.-]/, MAX_NAME_LENGTH);
  if (name === "") return false;
  yield* skipSpace(source);
  if ((yield* tryRead(source, callIdToken)) !== null) {
    yield* readWhile(source, /\w/, MAX_ID_LENGTH);
    yield* skipSpace(source);
  }
  yield* tryRead(source, argumentsToken);
  yield* skipSpace(source);
  if ((yield* peek(source)) !== "{") return false;
  source.emit({ type: "call", name });
  yield* readJson(source, (piece) => source.emitArguments(piece), true);
  return true;
}
