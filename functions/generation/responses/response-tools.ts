/** Wire fields of tools in POST /v1/responses, whose functions are flat. */
import { z } from "zod";

import type { ToolDefinition } from "../../../engine/index.ts";
import { MAX_TOOLS, parameters, toolName } from "../schemas/tool-fields.ts";
import type { ToolChoice } from "../schemas/tool-fields.ts";
import { boundedList, boundedText, flag, MAX_NAME_LENGTH } from "../schemas/wire-types.ts";

/** Characters. The largest descriptions are manuals of a few thousand. */
export const MAX_DESCRIPTION_LENGTH = 65_536;

const functionTool = z.object({
  type: z.literal("function"),
  name: toolName,
  description: boundedText(MAX_DESCRIPTION_LENGTH).nullish(),
  parameters: parameters.nullish(),
  strict: flag.nullish(),
});

const isHosted = (type: string): boolean => type !== "function";

/** A tool that OpenAI runs itself, such as web_search. The answer does without it. */
const hostedTool = z.object({
  type: boundedText(MAX_NAME_LENGTH).refine(isHosted, { error: "must be function", abort: true }),
});

export const responseTools = boundedList(
  z.union([functionTool, hostedTool], 'must be an object: {"type": "function", "name": …, "parameters": …}'),
  MAX_TOOLS,
  "must be a list of tools",
);

type GivenTool = z.output<typeof responseTools>[number];

const namedTool = z.object({ type: z.literal("function"), name: toolName });

const choiceRule = 'must be auto, none, required, {"type": "function", "name": …} or {"type": "allowed_tools", …}';

export const responseToolChoice = z.union(
  [
    z.enum(["auto", "none", "required"], choiceRule),
    z.discriminatedUnion(
      "type",
      [
        namedTool,
        z.object({
          type: z.literal("allowed_tools"),
          mode: z.enum(["auto", "required"], "must be auto or required"),
          tools: boundedList(namedTool, MAX_TOOLS, "must be a list of functions").min(1, "must not be empty"),
        }),
      ],
      choiceRule,
    ),
  ],
  choiceRule,
);

export type ResponseToolChoice = z.output<typeof responseToolChoice>;

interface ToolFields {
  readonly tools?: readonly GivenTool[] | null | undefined;
  readonly tool_choice?: ResponseToolChoice | null | undefined;
}

function isFunction(tool: GivenTool): tool is z.output<typeof functionTool> {
  return tool.type === "function";
}

/** With their positions in the body. */
export function functionsOf({ tools }: ToolFields): { readonly index: number; readonly tool: ToolDefinition }[] {
  return (tools ?? []).flatMap((tool, index) =>
    isFunction(tool)
      ? [
          {
            index,
            tool: {
              name: tool.name,
              description: tool.description ?? null,
              parameters: tool.parameters ?? null,
              strict: tool.strict === true,
            },
          },
        ]
      : [],
  );
}

/** Types of the tools that the answer does without. */
export function hostedTypesOf({ tools }: ToolFields): string[] {
  return [...new Set((tools ?? []).filter((tool) => !isFunction(tool)).map(({ type }) => type))];
}

/** The names of an `allowed_tools` choice; none for another choice. */
export function allowedNamesOf({ tool_choice: choice }: ToolFields): string[] {
  if (typeof choice !== "object" || choice === null || choice.type !== "allowed_tools") return [];
  return choice.tools.map(({ name }) => name);
}

/** The tools that the model sees, and whether it must call one. */
export function toolsForModel(fields: ToolFields): {
  readonly tools: readonly ToolDefinition[];
  readonly choice: ToolChoice | null;
} {
  const tools = functionsOf(fields).map(({ tool }) => tool);
  const choice = fields.tool_choice ?? null;
  if (choice === null || typeof choice === "string") return { tools, choice };
  if (choice.type === "function") return { tools, choice: { named: choice.name } };
  const allowed = new Set(allowedNamesOf(fields));
  return { tools: tools.filter(({ name }) => allowed.has(name)), choice: choice.mode };
}
