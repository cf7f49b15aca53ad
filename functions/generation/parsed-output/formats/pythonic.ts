/**
 * `[search(query="cats", limit=3), open(page=1)]` as the whole answer, as Llama 3.2 and 4, ToolACE and others write calls.
 * Since nothing marks a call, only names of the request's tools count. A call is given once it is complete.
 */
import { createReadingParser, peek, readWhile, skipSpace, tryRead } from "../text-source.ts";
import type { Reading, TextSource } from "../text-source.ts";
import type { ToolCallFormat } from "../tool-call-format.ts";
import { readPythonLiteral } from "./python-literal.ts";

const startToken = "<|python_start|>";
const endToken = "<|python_end|>";
const MAX_NAME_LENGTH = 256;

export const pythonicFormat: ToolCallFormat = {
  name: "pythonic",
  specialTokens: [startToken, endToken],
  createParser(tools) {
    const names = new Set(tools.map(({ name }) => name));
    return createReadingParser((source) => readCalls(source, (name) => names.has(name)));
  },
  // Python has no grammar for every JSON Schema.
  formOf: () => null,
};

function* readCalls(source: TextSource, isName: IsName): Reading<void> {
  yield* skipSpace(source);
  yield* tryRead(source, startToken);
  yield* skipSpace(source);
  if ((yield* tryRead(source, "[")) === null || !(yield* readPythonicCall(source, isName))) {
    source.position = 0;
    return;
  }
  while (true) {
    yield* skipSpace(source);
    const start = source.position;
    if ((yield* tryRead(source, ",")) === null) break;
    yield* skipSpace(source);
    if (!(yield* readPythonicCall(source, isName))) {
      source.position = start;
      return;
    }
  }
  if ((yield* tryRead(source, "]")) === null) return;
  yield* skipSpace(source);
  yield* tryRead(source, endToken);
  yield* skipSpace(source);
}

/** Whether a name may be that of a tool. */
type IsName = (name: string) => boolean;

/** Reads `name(key=value)`. Returns false, with nothing emitted, if the text is no whole call. */
export function* readPythonicCall(source: TextSource, isName: IsName): Reading<boolean> {
  const name = yield* readWhile(source, /[\w.-]/, MAX_NAME_LENGTH);
  if (!isName(name) || (yield* tryRead(source, "(")) === null) return false;
  const members: string[] = [];
  yield* skipSpace(source);
  while ((yield* tryRead(source, ")")) === null) {
    const key = yield* readWhile(source, /[\w-]/, MAX_NAME_LENGTH);
    yield* skipSpace(source);
    if (key === "" || (yield* tryRead(source, "=")) === null) return false;
    yield* skipSpace(source);
    const value = yield* readPythonLiteral(source);
    if (value === null) return false;
    members.push(`${JSON.stringify(key)}: ${value}`);
    yield* skipSpace(source);
    if ((yield* tryRead(source, ",")) === null && (yield* peek(source)) !== ")") return false;
    yield* skipSpace(source);
  }
  source.emit({ type: "call", name });
  source.emitArguments(`{${members.join(", ")}}`);
  source.forget();
  return true;
}
