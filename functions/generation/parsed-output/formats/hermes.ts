/**
 * `<tool_call>{"name": …, "arguments": …}</tool_call>`, as Hermes 2 Pro introduced it and Qwen 2.5, Qwen 3 and many
 * fine-tuned models write it. Qwen 3 Coder has the tags around XML; see `qwen3-xml.ts`.
 */
import { readJsonCall } from "../read-json.ts";
import { createReadingParser, emitUntil, skipSpace } from "../text-source.ts";
import type { Reading, TextSource } from "../text-source.ts";
import type { ToolCallFormat } from "../tool-call-format.ts";
import { taggedCalls } from "./call-forms.ts";

const startTag = "<tool_call>";
const endTag = "</tool_call>";

/** Reads what stands between the tags. Returns false, with nothing emitted, if it is no call. */
export type ReadBody = (source: TextSource) => Reading<boolean>;

export const hermesFormat: ToolCallFormat = {
  name: "hermes",
  specialTokens: [startTag, endTag],
  createParser: () => createReadingParser((source) => readTaggedCalls(source, readHermesBody)),
  formOf: (tools, rules) =>
    taggedCalls(tools, rules, {
      trigger: startTag,
      before: (name) => `\n{"name": ${JSON.stringify(name)}, "arguments": `,
      after: `}\n${endTag}`,
      between: "\n",
    }),
};

export function readHermesBody(source: TextSource): Reading<boolean> {
  return readJsonCall(source, { isName: (name) => name !== "", needsArguments: false });
}

/** Calls without the start tag. `readBody` reads what follows their own beginning. */
export interface BareCalls {
  readonly start: string;
  readonly readBody: ReadBody;
}

/** White space between a text and a call, and between calls, is left out. */
export function* readTaggedCalls(source: TextSource, readBody: ReadBody, bare: BareCalls | null = null): Reading<void> {
  const starts = bare === null ? [startTag] : [startTag, bare.start];
  let isOpen = false;
  while (true) {
    const found = yield* emitUntil(source, isOpen ? [endTag, ...starts] : starts);
    if (found === null) return;
    isOpen = false;
    if (found.marker === endTag) {
      yield* skipSpace(source);
      continue;
    }
    const start = source.position;
    const isBare = found.marker === bare?.start;
    if (!isBare) yield* skipSpace(source);
    if (yield* isBare ? bare.readBody(source) : readBody(source)) {
      isOpen = true;
      yield* skipSpace(source);
    } else {
      source.position = start;
      source.emitText(found.space + found.marker);
    }
  }
}
