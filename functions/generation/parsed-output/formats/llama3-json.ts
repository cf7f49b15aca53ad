/**
 * `{"name": …, "parameters": …}` as the whole answer, as Llama 3.1 and later write calls; several are separated by
 * semicolons. Since nothing marks a call, only names of the request's tools count.
 */
import { readJsonCall } from "../read-json.ts";
import { createReadingParser, peek, skipSpace, tryRead } from "../text-source.ts";
import type { Reading, TextSource } from "../text-source.ts";
import type { ToolCallFormat } from "../tool-call-format.ts";
import { leadingCalls } from "./call-forms.ts";

const startToken = "<|python_tag|>";
/** Llama 4's, around the calls. */
const startToken4 = "<|python_start|>";
const endToken4 = "<|python_end|>";

export const llama3JsonFormat: ToolCallFormat = {
  name: "llama3_json",
  specialTokens: [startToken, startToken4, endToken4],
  createParser(tools) {
    const names = new Set(tools.map(({ name }) => name));
    return createReadingParser((source) => readCalls(source, (name) => names.has(name)));
  },
  formOf: (tools, rules) =>
    leadingCalls(tools, rules, {
      before: (name) => `{"name": ${JSON.stringify(name)}, "parameters": `,
      after: "}",
      between: "; ",
      otherText: "[ \\t\\r\\n]*([^{< \\t\\r\\n]|<[^|])(.|\\n)*",
    }),
};

function* readCalls(source: TextSource, isName: (name: string) => boolean): Reading<void> {
  yield* skipSpace(source);
  yield* tryRead(source, startToken, startToken4);
  yield* skipSpace(source);
  if (!(yield* readJsonCall(source, { isName, needsArguments: true }))) {
    source.position = 0;
    return;
  }
  while (true) {
    yield* skipSpace(source);
    const start = source.position;
    yield* tryRead(source, ";", ",");
    yield* skipSpace(source);
    if ((yield* peek(source)) === "{" && (yield* readJsonCall(source, { isName, needsArguments: true }))) continue;
    source.position = start;
    yield* tryRead(source, endToken4);
    return;
  }
}
