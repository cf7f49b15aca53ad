/** Wire fields of tools in POST /v1/responses, whose functions are flat or in namespaces. */
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

const isHosted = (type: string): boolean => type !== "function" && type !== "namespace";

/** A tool that OpenAI runs itself, such as web_search. The answer does without it. */
const hostedTool = z.object({
  type: boundedText(MAX_NAME_LENGTH).refine(isHosted, { error: "must be function", abort: true }),
});

const toolsRule = "must be a list of tools";

/** Codex groups the tools of an MCP server like this. */
const namespaceTool = z.object({
  type: z.literal("namespace"),
  name: toolName,
  tools: boundedList(z.union([functionTool, hostedTool]), MAX_TOOLS, toolsRule),
});

export const responseTools = boundedList(
  z.union(
    [functionTool, hostedTool, namespaceTool],
    'must be an object: {"type": "function", "name": …, "parameters": …}',
  ),
  MAX_TOOLS,
  toolsRule,
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

function isNamespace(tool: GivenTool): tool is z.output<typeof namespaceTool> {
  return tool.type === "namespace";
}

/** A function of the request, with the name that the model sees. */
interface GivenFunction {
  readonly tool: ToolDefinition;
  /** Position of the function, or of its namespace, in the body's list. */
  readonly index: number;
  /** Path of the function in the body. */
  readonly path: string;
  /** The client's names of a function in a namespace; null for another one. */
  readonly inNamespace: { readonly namespace: string; readonly name: string } | null;
}

export function functionsOf({ tools }: ToolFields): GivenFunction[] {
  return (tools ?? []).flatMap((tool, index): GivenFunction[] => {
    const path = `tools[${index}]`;
    if (isFunction(tool)) return [{ tool: toDefinition(tool, tool.name), index, path, inNamespace: null }];
    if (!isNamespace(tool)) return [];
    const { name: namespace, tools: members } = tool;
    return members.flatMap((member, position) => {
      if (!isFunction(member)) return [];
      const { name } = member;
      return [
        {
          tool: toDefinition(member, nameForModel(name, namespace)),
          index,
          path: `${path}.tools[${position}]`,
          inNamespace: { namespace, name },
        },
      ];
    });
  });
}

/** The model knows no namespaces; vLLM's form. */
export function nameForModel(name: string, namespace: string | null | undefined): string {
  return typeof namespace === "string" ? `${namespace}__${name}` : name;
}

function toDefinition(
  { description, parameters: schema, strict }: z.output<typeof functionTool>,
  name: string,
): ToolDefinition {
  return { name, description: description ?? null, parameters: schema ?? null, strict: strict === true };
}

/** Types of the tools that the answer does without. */
export function hostedTypesOf({ tools }: ToolFields): string[] {
  const given = (tools ?? []).flatMap((tool): readonly GivenTool[] => (isNamespace(tool) ? tool.tools : [tool]));
  return [...new Set(given.filter((tool) => !isFunction(tool)).map(({ type }) => type))];
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
