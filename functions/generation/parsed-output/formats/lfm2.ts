/**
 * `<|tool_call_start|>[search(query="cats", limit=3), open(page=1)]<|tool_call_end|>`, as LFM2 writes calls. If its
 * prompt asks for JSON, the list has objects like `{"name": "search", "arguments": {…}}`, which are read too.
 */
import { readJsonCall } from "../read-json.ts";
import { createReadingParser, emitUntil, peek, skipSpace, tryRead } from "../text-source.ts";
import type { Reading, TextSource } from "../text-source.ts";
import type { ToolCallFormat } from "../tool-call-format.ts";
import { taggedCalls } from "./call-forms.ts";
import { readPythonicCall } from "./pythonic.ts";

const startToken = "<|tool_call_start|>";
const endToken = "<|tool_call_end|>";

export const lfm2Format: ToolCallFormat = {
  name: "lfm2",
  specialTokens: [startToken, endToken],
  createParser: () => createReadingParser(readLists),
  // Python has no grammar for every JSON Schema.
  formOf: (tools, rules) =>
    taggedCalls(tools, rules, {
      trigger: startToken,
      before: (name) => `[{"name": ${JSON.stringify(name)}, "arguments": `,
      after: `}]${endToken}`,
      between: "",
    }),
};

/** White space between a text and a list, and between lists, is left out. */
function* readLists(source: TextSource): Reading<void> {
  while (true) {
    const found = yield* emitUntil(source, [startToken]);
    if (found === null) return;
    const start = source.position;
    yield* skipSpace(source);
    if ((yield* tryRead(source, "[")) !== null && (yield* readCall(source))) {
      yield* readFurtherCalls(source);
    } else {
      source.position = start;
      source.emitText(found.space + startToken);
    }
  }
}

function* readFurtherCalls(source: TextSource): Reading<void> {
  while (true) {
    yield* skipSpace(source);
    const start = source.position;
    if ((yield* tryRead(source, ",")) === null) break;
    if (!(yield* readCall(source))) {
      source.position = start;
      return;
    }
  }
  yield* tryRead(source, "]");
  yield* skipSpace(source);
  yield* tryRead(source, endToken);
  yield* skipSpace(source);
}

/** Returns false, with nothing emitted, if the text is no call. */
function* readCall(source: TextSource): Reading<boolean> {
  const isName = (name: string): boolean => name !== "";
  yield* skipSpace(source);
  if ((yield* peek(source)) === "{") return yield* readJsonCall(source, { isName, needsArguments: false });
  return yield* readPythonicCall(source, isName);
}
