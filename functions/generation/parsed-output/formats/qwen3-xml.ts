/**
 * `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`, as Qwen 3 Coder writes calls.
 * Values are raw text, so the schema of the tool says which of them are numbers, flags or JSON. The model sometimes leaves
 * out the first tag: a call of a tool of the request is then found by `<function=`.
 */
import type { JsonObject, ToolDefinition } from "../../../../engine/index.ts";
import { createReadingParser, lengthOfBegunMarker, peek, readWhile, skipSpace, tryRead } from "../text-source.ts";
import type { Reading, TextSource } from "../text-source.ts";
import type { ToolCallFormat } from "../tool-call-format.ts";
import { hermesFormat, readHermesBody, readTaggedCalls } from "./hermes.ts";
import { parseLoosely, typeNameOf, typesOf } from "./schema-types.ts";

const MAX_NAME_LENGTH = 256;
const functionStart = "<function=";
const parameterEnd = "</parameter>";

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
    if (!(yield* readValue(source, typesOf(properties[key], parameters)))) return true;
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

function propertiesOf({ properties }: JsonObject): JsonObject {
  return typeof properties === "object" && properties !== null ? (properties as JsonObject) : {};
}

/**
 * Emits the value as JSON: strings as they arrive, others once they are complete. One line break at either end belongs
 * to the tags. Returns false if the text ends within the value.
 */
function* readValue(source: TextSource, types: ReadonlySet<string>): Reading<boolean> {
  const isText = types.size === 0 || (types.size === 1 && types.has("string"));
  yield* tryRead(source, "\n");
  let value = "";
  if (isText) source.emitArguments('"');
  while (true) {
    const { text, position } = source;
    const end = text.indexOf(parameterEnd, position);
    const pending = text.slice(position, end === -1 ? undefined : end);
    const isWhole = end !== -1;
    const settled = isWhole ? pending.replace(/\n$/, "") : withoutBegunEnd(pending);
    if (isText) source.emitArguments(JSON.stringify(settled).slice(1, -1));
    else value += settled;
    source.position += isWhole ? pending.length + parameterEnd.length : settled.length;
    source.forget();
    if (isWhole) {
      source.emitArguments(isText ? '"' : toJson(value, types));
      return true;
    }
    if (source.isComplete) return false;
    yield;
  }
}

/** Holds back what may be the end tag and the line break before it. */
function withoutBegunEnd(pending: string): string {
  return pending.slice(0, pending.length - lengthOfBegunMarker(pending, [`\n${parameterEnd}`, parameterEnd]));
}

/** A value whose type the schema does not allow is a string. */
function toJson(text: string, types: ReadonlySet<string>): string {
  const value = parseLoosely(text.trim());
  if (value !== undefined) {
    const type = typeNameOf(value);
    if (types.has(type) || (type === "integer" && types.has("number"))) return JSON.stringify(value);
  }
  return JSON.stringify(text);
}
