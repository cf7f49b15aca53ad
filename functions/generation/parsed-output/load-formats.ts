/** The formats that the settings name: built-in ones, or exports of the user's modules. */
import { z } from "zod";

import { importExport } from "../../../engine/index.ts";
import type { Config } from "../../settings/config.ts";
import { ConfigError } from "../../settings/setting.ts";
import { guardFormat } from "./guarded-format.ts";
import { otherFormatNames, reasoningFormats, toolCallFormats } from "./model-formats.ts";
import type { ConfiguredFormats, ReasoningFormat } from "./model-formats.ts";
import type { ToolCallFormat } from "./tool-call-format.ts";

export type ParserConfig = Pick<Config, "toolCallParser" | "reasoningParser" | "parserPath">;

const method = z.unknown().refine((value) => typeof value === "function", "must be a function");

const toolCallFormatSchema = z.object({
  name: z.string("must be a string"),
  specialTokens: z.array(z.string(), "must be a list of strings").default([]),
  createParser: method,
  formOf: method.optional(),
  createCallId: method.optional(),
});

const marker = z.string("must be a string").min(2, "must have at least two characters");

const reasoningFormatSchema = z.object({
  name: z.string("must be a string"),
  start: marker,
  // Grammars follow the text up to it.
  end: marker.refine((text) => text.lastIndexOf(text.charAt(0)) === 0, "must contain its first character only once"),
  startsInside: z.boolean("must be true or false").default(false),
});

/** @throws ConfigError for a format that is unknown or cannot be loaded. */
export async function loadConfiguredFormats(config: ParserConfig): Promise<ConfiguredFormats> {
  const { toolCallParser, reasoningParser } = config;
  return {
    toolCalls: toolCallParser === null ? null : await loadToolCallFormat(toolCallParser, config),
    reasoning: reasoningParser === null ? null : await loadReasoningFormat(reasoningParser, config),
  };
}

async function loadToolCallFormat(name: string, { parserPath }: ParserConfig): Promise<ToolCallFormat> {
  const builtInName = otherFormatNames.get(name) ?? name;
  const builtIn = toolCallFormats.find((format) => format.name === builtInName);
  if (builtIn !== undefined) return builtIn;
  const names = toolCallFormats.map((format) => format.name);
  const value = await importParser("TOOL_CALL_PARSER", name, names, parserPath);
  const parsed = toolCallFormatSchema.safeParse(value);
  if (!parsed.success) throw invalidParser("TOOL_CALL_PARSER", name, describeIssue(parsed.error));
  return guardFormat(value as ToolCallFormat, parsed.data.specialTokens);
}

async function loadReasoningFormat(name: string, { parserPath }: ParserConfig): Promise<ReasoningFormat | "none"> {
  if (name === "none") return "none";
  const builtIn = reasoningFormats.find((format) => format.name === name);
  if (builtIn !== undefined) return builtIn;
  const names = [...reasoningFormats.map((format) => format.name), "none"];
  const value = await importParser("REASONING_PARSER", name, names, parserPath);
  const parsed = reasoningFormatSchema.safeParse(value);
  if (!parsed.success) throw invalidParser("REASONING_PARSER", name, describeIssue(parsed.error));
  return parsed.data;
}

async function importParser(
  setting: string,
  name: string,
  names: readonly string[],
  searchPath: readonly string[],
): Promise<unknown> {
  if (!name.includes(":")) {
    throw new ConfigError([`${setting} is ${JSON.stringify(name)}: expected ${names.join(", ")}, or module:Export.`]);
  }
  try {
    return (await importExport(name, searchPath)).value;
  } catch (error) {
    throw invalidParser(setting, name, error instanceof Error ? error.message : String(error));
  }
}

function invalidParser(setting: string, name: string, reason: string): ConfigError {
  const sentence = reason.endsWith(".") ? reason : `${reason}.`;
  return new ConfigError([`${setting}: ${name} could not be loaded: ${sentence}`]);
}

function describeIssue({ issues }: z.ZodError): string {
  const [issue] = issues;
  return issue === undefined ? "it is not a format" : `${issue.path.join(".") || "the export"}: ${issue.message}`;
}
