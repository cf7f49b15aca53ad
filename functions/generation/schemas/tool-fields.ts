/** Wire fields of tools: the functions that a model may call, and the calls of earlier turns. */
import { z } from "zod";

import { structuredOutputLimits } from "../../../engine/index.ts";
import type { JsonObject, ToolDefinition } from "../../../engine/index.ts";
import {
  argumentsOfCustomCall,
  customGrammar,
  customInput,
  MAX_DESCRIPTION_LENGTH,
  toTextFunction,
} from "../custom-tools.ts";
import { parseArguments } from "../parse-arguments.ts";
import { addIssue, boundedJson, boundedList, boundedText, flag, name, text } from "./wire-types.ts";

/** Twice as many as OpenAI accepts: clients of several MCP servers collect this many. Each is printed into the prompt. */
export const MAX_TOOLS = 256;
/** Calls of one turn. */
const MAX_TOOL_CALLS = 256;
/** Values and characters of the arguments of a call, which may contain a file that the model wrote. */
const MAX_ARGUMENTS_SIZE = 524_288;
/** OpenAI's rule. Some formats of calls have no way to quote other names. */
const toolNamePattern = /^[a-zA-Z0-9_-]{1,64}$/;

/** A name that a tool may have. */
export const toolName = text.regex(toolNamePattern, {
  error: ({ input }) => {
    const shown = typeof input === "string" ? JSON.stringify(input.slice(0, 80)) : typeof input;
    return `must be 1 to 64 letters, digits, underscores and hyphens, got ${shown}`;
  },
  abort: true,
});

/** An object with any members. Its type is checked before its size. */
export function jsonObject(maxSize: number, rule: string) {
  return z
    .unknown()
    .refine((value): boolean => isJsonObject(value), { error: rule, abort: true })
    .pipe(boundedJson(maxSize))
    .pipe(z.record(z.string(), z.unknown(), rule));
}

/** The values and characters of a schema are at most as many as the bytes of a structured output. */
export const parameters = jsonObject(structuredOutputLimits.sourceBytes, "must be a JSON Schema: an object").refine(
  ({ type }) => type === undefined || type === "object",
  { path: ["type"], error: "must be object: the arguments of a function are an object", abort: true },
);

const toolRule = 'must be an object: {"type": "function", "function": …}';
const functionRule = 'must be an object: {"name": …, "parameters": …}';

/** A tool of a request, as the model sees it. */
export interface GivenTool extends ToolDefinition {
  /** Only for clients whose tool has a text as input. */
  readonly isCustom?: boolean;
}

const functionTool = z
  .object(
    {
      type: z.literal("function"),
      function: z.object(
        {
          name: toolName,
          description: boundedText(MAX_DESCRIPTION_LENGTH).nullish(),
          parameters: parameters.nullish(),
          strict: flag.nullish(),
        },
        functionRule,
      ),
    },
    toolRule,
  )
  .transform(({ function: { name: of, description, parameters: schema, strict } }): GivenTool => {
    return { name: of, description: description ?? null, parameters: schema ?? null, strict: strict === true };
  });

const customTool = z
  .object({
    type: z.literal("custom"),
    custom: z.object(
      {
        name: toolName,
        description: boundedText(MAX_DESCRIPTION_LENGTH).nullish(),
        format: z
          .discriminatedUnion(
            "type",
            [z.object({ type: z.literal("text") }), z.object({ type: z.literal("grammar"), grammar: customGrammar })],
            'must be {"type": "text"} or {"type": "grammar", "grammar": …}',
          )
          .nullish(),
      },
      'must be an object: {"name": …}',
    ),
  })
  .transform(({ custom: { name: of, description, format } }): GivenTool => {
    const grammar = format?.type === "grammar" ? format.grammar : null;
    return { ...toTextFunction(of, description, grammar), isCustom: true };
  });

const tool = z.discriminatedUnion("type", [functionTool, customTool], {
  error: ({ input }) => (isJsonObject(input) ? "must be function or custom: the service has no other tools" : toolRule),
});

/** `named`: the model must call this tool, once. */
export type ToolChoice = "auto" | "none" | "required" | { readonly named: string };

/** A choice among some of the tools. */
export interface AllowedTools {
  readonly mode: "auto" | "required";
  readonly allowed: readonly string[];
}

const toolChoiceRule =
  'must be auto, none, required, {"type": "function", "function": {"name": …}} or {"type": "allowed_tools", …}';

const named = z.object({ name: toolName }, 'must be an object: {"name": …}');
const namedFunction = z.object({ type: z.literal("function"), function: named });
const namedCustom = z.object({ type: z.literal("custom"), custom: named });
const namedTool = z.discriminatedUnion("type", [namedFunction, namedCustom], "must be function or custom");

function nameOf(given: z.output<typeof namedTool>): string {
  return given.type === "function" ? given.function.name : given.custom.name;
}

const allowedToolsRule = 'must be an object: {"mode": …, "tools": …}';

const toolChoice = z
  .union(
    [
      // Mistral's word for required is any.
      z.enum(["auto", "none", "required", "any"], toolChoiceRule),
      z.discriminatedUnion(
        "type",
        [
          namedFunction,
          namedCustom,
          z.object({
            type: z.literal("allowed_tools"),
            allowed_tools: z.object(
              {
                mode: z.enum(["auto", "required"], "must be auto or required"),
                tools: boundedList(namedTool, MAX_TOOLS, "must be a list of functions").min(1, {
                  error: "must not be empty",
                  abort: true,
                }),
              },
              allowedToolsRule,
            ),
          }),
        ],
        toolChoiceRule,
      ),
    ],
    toolChoiceRule,
  )
  .transform((choice): ToolChoice | AllowedTools => {
    if (typeof choice === "string") return choice === "any" ? "required" : choice;
    if (choice.type !== "allowed_tools") return { named: nameOf(choice) };
    const { mode, tools } = choice.allowed_tools;
    return { mode, allowed: tools.map(nameOf) };
  });

export const toolFields = {
  tools: boundedList(tool, MAX_TOOLS, "must be a list of tools").nullish(),
  tool_choice: toolChoice.nullish(),
  parallel_tool_calls: flag.nullish(),
};

/**
 * Clients send the text that they received; chat templates need the object. A text that is no JSON becomes an empty
 * object: it is a call that `max_tokens` cut off, which agents send back with an error as its result.
 */
const argumentsRule = "must be a string with a JSON object";
const givenArguments = z.union(
  [boundedText(MAX_ARGUMENTS_SIZE), jsonObject(MAX_ARGUMENTS_SIZE, argumentsRule)],
  argumentsRule,
);
export const callArguments = givenArguments.transform((given, context): JsonObject => {
  if (typeof given !== "string") return given;
  if (given.trim() === "") return {};
  const parsed = parseArguments(given);
  if (parsed.kind === "parsed" && isJsonObject(parsed.value)) return parsed.value;
  if (parsed.kind === "refused" && parsed.code === "invalid_json") return {};
  const message = parsed.kind === "refused" ? parsed.problem : `${argumentsRule}, which this JSON is not`;
  context.addIssue({ code: "custom", message });
  return z.NEVER;
});

/** A call of an earlier turn, as the model sees it. */
export interface GivenCall {
  readonly id: string;
  readonly function: { readonly name: string; readonly arguments?: JsonObject | null | undefined };
}

const functionCall = z
  .object({
    id: name,
    type: z.literal("function"),
    // Models invent names that no tool can have, and agents send such calls back with an error as their result.
    function: z.object({ name, arguments: callArguments.nullish() }, "must be an object"),
  })
  .transform(({ id, function: called }): GivenCall => ({ id, function: called }));

const customCall = z
  .object({ id: name, type: z.literal("custom"), custom: z.object({ name, input: customInput }, "must be an object") })
  .transform(({ id, custom: { name: called, input } }): GivenCall => {
    return { id, function: { name: called, arguments: argumentsOfCustomCall(input) } };
  });

/** A call without a type is one of a function. */
const toolCall = z.preprocess(
  (call) => (isJsonObject(call) && (call["type"] ?? null) === null ? { ...call, type: "function" } : call),
  z.discriminatedUnion("type", [functionCall, customCall], {
    error: ({ input }) => (isJsonObject(input) ? "must be function or custom" : "must be an object"),
  }),
);

/** The calls of an assistant's turn. */
export const toolCalls = boundedList(toolCall, MAX_TOOL_CALLS, "must be a list of tool calls");

interface ToolFields {
  readonly tools?: readonly GivenTool[] | null | undefined;
  readonly tool_choice?: ToolChoice | AllowedTools | null | undefined;
  readonly structured_outputs?: object | null | undefined;
}

/** Rejects fields that cannot be combined. */
export function checkTools(fields: ToolFields, context: z.RefinementCtx): void {
  const { tools: given, tool_choice: choice } = fields;
  const tools = given ?? [];
  const names = new Set<string>();
  for (const [index, tool] of tools.entries()) {
    if (names.has(tool.name)) {
      context.addIssue({
        code: "custom",
        path: ["tools", index, tool.isCustom === true ? "custom" : "function", "name"],
        message: `is the name of two tools: ${tool.name}`,
      });
    }
    names.add(tool.name);
  }
  if (choice === null || choice === undefined || choice === "none") return;
  if (tools.length === 0) {
    // Clients send auto by default.
    if (choice !== "auto") addIssue(context, "tool_choice", "can only be given with tools");
    return;
  }
  const chosen = typeof choice === "string" ? [] : "named" in choice ? [choice.named] : choice.allowed;
  const unknown = chosen.find((each) => !names.has(each));
  if (unknown !== undefined) addIssue(context, "tool_choice", `names a tool that tools does not have: ${unknown}`);
  // `response_format` is about an answer in text: agents send it with every turn, required calls included.
  if (!requiresCall(choice) || !fields.structured_outputs) return;
  addIssue(context, "structured_outputs", "cannot be combined with a tool_choice that requires a call");
}

/** Whether the answer must be a call. */
export function requiresCall(choice: ToolChoice | AllowedTools | null | undefined): boolean {
  if (choice === null || choice === undefined || choice === "none") return false;
  if (typeof choice === "string") return choice === "required";
  return "named" in choice || choice.mode === "required";
}

/** The tools that the model may call, and how it has to choose. */
export function callableTools({ tools, tool_choice: choice }: ToolFields): {
  readonly tools: readonly ToolDefinition[];
  readonly choice: ToolChoice;
} {
  const given = tools ?? [];
  if (choice === null || choice === undefined) return { tools: given, choice: "auto" };
  if (typeof choice === "string" || "named" in choice) return { tools: given, choice };
  const allowed = new Set(choice.allowed);
  return { tools: given.filter(({ name: of }) => allowed.has(of)), choice: choice.mode };
}

function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
