/**
 * `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`, as Qwen 3 Coder writes calls.
 * Values are raw text, so the schema of the tool says which of them are numbers, flags or JSON. The model sometimes leaves
 * out the first tag: a call of a tool of the request is then found by `<function=`.
 */
import type { ToolDefinition } from "../../../../engine/index.ts";
import { createReadingParser, peek, readWhile, skipSpace, tryRead } from "../text-source.ts";
import type { Reading, TextSource } from "../text-source.ts";
import type { ToolCallFormat } from "../tool-call-format.ts";
import { hermesFormat, readHermesBody, readTaggedCalls } from "./hermes.ts";
import { propertiesOf, readRawValue } from "./raw-values.ts";
import { typesOf } from "./schema-types.ts";

const MAX_NAME_LENGTH = 256;
const functionStart = "<function=";
/** One line break at either end of a value belongs to the tags. */
const parameterEnds = { end: "</parameter>", lineBreak: "\n" };

export const qwen3XmlFormat: ToolCallFormat = {
  name: "qwen3_coder",
  specialTokens: hermesFormat.specialTokens,
  createParser: (tools) =>
    createReadingParser((source) =>
      readTaggedCalls(source, (body) => readXmlOrJsonBody(body, tools), {
        start: functionStart,
        readBody: (body) => readBareBody(body, tools),
      }),
    ),
  // Raw text cannot carry every schema. The JSON form between the same tags can, and the parser reads both.
  formOf: (tools, rules) => hermesFormat.formOf(tools, rules),
};

function* readXmlOrJsonBody(source: TextSource, tools: readonly ToolDefinition[]): Reading<boolean> {
  if ((yield* peek(source)) === "{") return yield* readHermesBody(source);
  const name = yield* readTagName(source, functionStart);
  return name === null ? false : yield* readXmlBody(source, name, tools);
}

/** A form that enforces the schemas of strict tools begins calls with the tag. Without it, nothing was enforced. */
function* readBareBody(source: TextSource, tools: readonly ToolDefinition[]): Reading<boolean> {
  const name = yield* readRestOfName(source);
  const isCallable = tools.some((tool) => tool.name === name && !tool.strict);
  return name !== null && isCallable ? yield* readXmlBody(source, name, tools) : false;
}

function* readXmlBody(source: TextSource, name: string, tools: readonly ToolDefinition[]): Reading<boolean> {
  const parameters = tools.find((tool) => tool.name === name)?.parameters ?? {};
  const properties = propertiesOf(parameters);
  source.emit({ type: "call", name });
  source.emitArguments("{");
  for (let isFirst = true; ; isFirst = false) {
    yield* skipSpace(source);
    const key = yield* readTagName(source, "<parameter=");
    if (key === null) break;
    source.emitArguments(`${isFirst ? "" : ", "}${JSON.stringify(key)}: `);
    if (!(yield* readRawValue(source, typesOf(properties[key], parameters), parameterEnds))) return true;
  }
  // Arguments stay incomplete if the output ends within them, as in every other format.
  if ((yield* peek(source)) === "") return true;
  source.emitArguments("}");
  yield* tryRead(source, "</function>");
  return true;
}

function* readTagName(source: TextSource, start: string): Reading<string | null> {
  const position = source.position;
  if ((yield* tryRead(source, start)) !== null) {
    const name = yield* readRestOfName(source);
    if (name !== null) return name;
  }
  source.position = position;
  return null;
}

/** Of a tag whose start is read. */
function* readRestOfName(source: TextSource): Reading<string | null> {
  const name = yield* readWhile(source, /[^<>\n]/, MAX_NAME_LENGTH);
  return name !== "" && (yield* tryRead(source, ">")) !== null ? name.trim() : null;
}
