/** Wire fields of tools in POST /v1/responses: functions and custom tools, flat or in namespaces. */
import { z } from "zod";

import type { ToolDefinition } from "../../../engine/index.ts";
import { customGrammar, MAX_DESCRIPTION_LENGTH, toTextFunction } from "../custom-tools.ts";
import { MAX_TOOLS, parameters, toolName } from "../schemas/tool-fields.ts";
import type { ToolChoice } from "../schemas/tool-fields.ts";
import { boundedList, boundedText, flag, MAX_NAME_LENGTH } from "../schemas/wire-types.ts";

const functionTool = z.object({
  type: z.literal("function"),
  name: toolName,
  description: boundedText(MAX_DESCRIPTION_LENGTH).nullish(),
  parameters: parameters.nullish(),
  strict: flag.nullish(),
});

/** A tool whose input is a text, such as Codex' patches. */
const customTool = z.object({
  type: z.literal("custom"),
  name: toolName,
  description: boundedText(MAX_DESCRIPTION_LENGTH).nullish(),
  format: z
    .discriminatedUnion(
      "type",
      [z.object({ type: z.literal("text") }), z.object({ type: z.literal("grammar"), ...customGrammar.shape })],
      'must be {"type": "text"} or {"type": "grammar", "syntax": …, "definition": …}',
    )
    .nullish(),
});

const ownTypes: ReadonlySet<string> = new Set(["function", "custom", "namespace"]);
const isHosted = (type: string): boolean => !ownTypes.has(type);

/** A tool that OpenAI runs itself, such as web_search. The answer does without it. */
const hostedTool = z.object({
  type: boundedText(MAX_NAME_LENGTH).refine(isHosted, { error: "must be function", abort: true }),
});

const toolsRule = "must be a list of tools";

/** Codex groups the tools of an MCP server like this. */
const namespaceTool = z.object({
  type: z.literal("namespace"),
  name: toolName,
  tools: boundedList(z.union([functionTool, customTool, hostedTool]), MAX_TOOLS, toolsRule),
});

export const responseTools = boundedList(
  z.union(
    [functionTool, customTool, hostedTool, namespaceTool],
    'must be an object: {"type": "function", "name": …, "parameters": …}',
  ),
  MAX_TOOLS,
  toolsRule,
);

type GivenTool = z.output<typeof responseTools>[number];
type CustomTool = z.output<typeof customTool>;

const namedTool = z.object({ type: z.enum(["function", "custom"], "must be function or custom"), name: toolName });

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
          tools: boundedList(
            z.union([namedTool, hostedTool], 'must be an object: {"type": "function", "name": …}'),
            MAX_TOOLS,
            "must be a list of functions",
          ).min(1, "must not be empty"),
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
  readonly input: string | readonly { readonly type: string; readonly tools?: readonly GivenTool[] }[];
  readonly tool_choice?: ResponseToolChoice | null | undefined;
}

function isFunction(tool: GivenTool): tool is z.output<typeof functionTool> {
  return tool.type === "function";
}

function isCustom(tool: GivenTool): tool is CustomTool {
  return tool.type === "custom";
}

function isNamespace(tool: GivenTool): tool is z.output<typeof namespaceTool> {
  return tool.type === "namespace";
}

/** A function of the request, or a custom tool as a function, with the name that the model sees. */
interface GivenFunction {
  readonly tool: ToolDefinition;
  /** Position of the function, or of its namespace, in its list. */
  readonly index: number;
  /** Path of the function in the body. */
  readonly path: string;
  /** The client's names of a function in a namespace; null for another one. */
  readonly inNamespace: { readonly namespace: string; readonly name: string } | null;
  /** Null for a function. */
  readonly custom: CustomTool | null;
}

/** Those of items (`additional_tools`) replace earlier ones of the same name. */
export function functionsOf(fields: ToolFields): GivenFunction[] {
  const [own = [], ...added] = toolLists(fields).map(({ tools, path }) => functionsIn(tools, path));
  if (added.length === 0) return own;
  const byName = new Map(added.flat().map((each) => [each.tool.name, each]));
  return [...own.filter(({ tool }) => !byName.has(tool.name)), ...byName.values()];
}

interface ToolList {
  readonly tools: readonly GivenTool[];
  readonly path: string;
}

/** The request's own, then those of its items. */
function toolLists({ tools, input }: ToolFields): ToolList[] {
  const items = typeof input === "string" ? [] : input;
  return [
    { tools: tools ?? [], path: "tools" },
    ...items.flatMap((item, index): ToolList[] =>
      item.tools === undefined ? [] : [{ tools: item.tools, path: `input[${index}].tools` }],
    ),
  ];
}

function functionsIn(tools: readonly GivenTool[], listPath: string): GivenFunction[] {
  return tools.flatMap((tool, index): GivenFunction[] => {
    const path = `${listPath}[${index}]`;
    if (!isNamespace(tool)) return toFunction(tool, { index, path, inNamespace: null });
    const { name: namespace, tools: members } = tool;
    return members.flatMap((member, position) => {
      const inNamespace = { namespace, name: "name" in member ? member.name : "" };
      return toFunction(member, { index, path: `${path}.tools[${position}]`, inNamespace });
    });
  });
}

/** None for a tool that OpenAI runs itself. */
function toFunction(tool: GivenTool, place: Pick<GivenFunction, "index" | "path" | "inNamespace">): GivenFunction[] {
  const namespace = place.inNamespace?.namespace;
  if (isFunction(tool))
    return [{ ...place, tool: toDefinition(tool, nameForModel(tool.name, namespace)), custom: null }];
  if (!isCustom(tool)) return [];
  const { name, description, format } = tool;
  const grammar = format?.type === "grammar" ? format : null;
  return [{ ...place, tool: toTextFunction(nameForModel(name, namespace), description, grammar), custom: tool }];
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
export function hostedTypesOf(fields: ToolFields): string[] {
  const given = toolLists(fields)
    .flatMap(({ tools }) => tools)
    .flatMap((tool): readonly GivenTool[] => (isNamespace(tool) ? tool.tools : [tool]));
  return [...new Set(given.filter(({ type }) => isHosted(type)).map(({ type }) => type))];
}

/** The names of an `allowed_tools` choice, without those of tools that the model never sees; none for another choice. */
export function allowedNamesOf({ tool_choice: choice }: Pick<ToolFields, "tool_choice">): string[] {
  if (typeof choice !== "object" || choice === null || choice.type !== "allowed_tools") return [];
  return choice.tools.flatMap((tool) => ("name" in tool ? [tool.name] : []));
}

/** The tools that the model sees, and whether it must call one. */
export function toolsForModel(fields: ToolFields): {
  readonly tools: readonly ToolDefinition[];
  readonly choice: ToolChoice | null;
} {
  const tools = functionsOf(fields).map(({ tool }) => tool);
  const choice = fields.tool_choice ?? null;
  if (choice === null || typeof choice === "string") return { tools, choice };
  if (choice.type !== "allowed_tools") return { tools, choice: { named: choice.name } };
  const allowed = new Set(allowedNamesOf(fields));
  return { tools: tools.filter(({ name }) => allowed.has(name)), choice: choice.mode };
}
