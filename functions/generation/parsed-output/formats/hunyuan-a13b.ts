/**
 * `<tool_calls>[{"name": …, "arguments": …}]</tool_calls>`, as Hunyuan A13B and the dense models of HunYuan write calls,
 * often behind the name of the assistant in Chinese.
 */
import { readJsonCallList } from "../read-json.ts";
import { createReadingParser, emitUntil, peek, skipSpace, tryRead } from "../text-source.ts";
import type { Reading, TextSource } from "../text-source.ts";
import type { ToolCallFormat } from "../tool-call-format.ts";
import { listedCalls } from "./call-forms.ts";

const startTag = "<tool_calls>";
const endTag = "</tool_calls>";
const assistantName = "助手：";

export const hunyuanA13bFormat: ToolCallFormat = {
  name: "hunyuan_a13b",
  specialTokens: [startTag, endTag],
  createParser: () => createReadingParser(readCalls),
  formOf: (tools, rules) =>
    listedCalls(tools, rules, {
      start: startTag,
      before: (name) => `{"name": ${JSON.stringify(name)}, "arguments": `,
      after: "}",
      end: endTag,
    }),
};

function* readCalls(source: TextSource): Reading<void> {
  while (true) {
    const found = yield* emitUntil(source, [assistantName + startTag, startTag]);
    if (found === null) return;
    const start = source.position;
    yield* skipSpace(source);
    if ((yield* peek(source)) === "[" && (yield* readJsonCallList(source))) {
      yield* skipSpace(source);
      yield* tryRead(source, endTag);
      yield* skipSpace(source);
    } else {
      source.position = start;
      source.emitText(found.space + found.marker);
    }
  }
}
