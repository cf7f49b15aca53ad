/**
 * `<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>`, as GLM writes calls since 4.5. Values
 * are raw text if the tool's schema allows strings only, and JSON otherwise.
 */
import type { ToolDefinition } from "../../../../engine/index.ts";
import { createReadingParser, peek, readWhile, skipSpace, tryRead } from "../text-source.ts";
import type { Reading, TextSource } from "../text-source.ts";
import type { ToolCallFormat } from "../tool-call-format.ts";
import { hermesFormat, readHermesBody, readTaggedCalls } from "./hermes.ts";
import { propertiesOf, readRawValue } from "./raw-values.ts";
import { typesOf } from "./schema-types.ts";

const MAX_NAME_LENGTH = 256;
const keyStart = "<arg_key>";
const keyEnd = "</arg_key>";
const valueStart = "<arg_value>";
const valueEnds = { end: "</arg_value>", lineBreak: "" };
const callEnd = "</tool_call>";

export const glm45Format: ToolCallFormat = {
  name: "glm45",
  specialTokens: [...hermesFormat.specialTokens, keyStart, keyEnd, valueStart, valueEnds.end],
  createParser: (tools) =>
    createReadingParser((source) => readTaggedCalls(source, (body) => readPairsOrJson(body, tools))),
  // Raw text cannot carry every schema. The JSON form between the same tags can, and the parser reads both.
  formOf: (tools, rules) => hermesFormat.formOf(tools, rules),
};

function* readPairsOrJson(source: TextSource, tools: readonly ToolDefinition[]): Reading<boolean> {
  if ((yield* peek(source)) === "{") return yield* readHermesBody(source);
  const name = (yield* readWhile(source, /[^<>\n]/, MAX_NAME_LENGTH)).trim();
  yield* skipSpace(source);
  const next = name === "" ? null : yield* tryRead(source, keyStart, callEnd);
  if (next === null) return false;
  // The caller reads the end of the call.
  source.position -= next.length;
  yield* readPairs(source, name, tools);
  return true;
}

/** Arguments stay incomplete if the output ends within them, or continues with anything else. */
function* readPairs(source: TextSource, name: string, tools: readonly ToolDefinition[]): Reading<void> {
  const parameters = tools.find((tool) => tool.name === name)?.parameters ?? {};
  const properties = propertiesOf(parameters);
  source.emit({ type: "call", name });
  source.emitArguments("{");
  for (let isFirst = true; (yield* tryRead(source, keyStart)) !== null; isFirst = false) {
    const key = (yield* readWhile(source, /[^<]/, MAX_NAME_LENGTH)).trim();
    if ((yield* tryRead(source, keyEnd)) === null) return;
    yield* skipSpace(source);
    if ((yield* tryRead(source, valueStart)) === null) return;
    source.emitArguments(`${isFirst ? "" : ", "}${JSON.stringify(key)}: `);
    if (!(yield* readRawValue(source, typesOf(properties[key], parameters), valueEnds))) return;
    yield* skipSpace(source);
  }
  if ((yield* peek(source)) !== "") source.emitArguments("}");
}
