/** The tools of POST /v1/messages that the model sees. */
import type { ToolDefinition } from "../../../engine/index.ts";
import type { MessageFields } from "./message-blocks.ts";
import { isOwn } from "./tool-definitions.ts";
import type { GivenTool } from "./tool-definitions.ts";

interface ToolFields {
  readonly tools?: readonly GivenTool[] | null | undefined;
  readonly messages: readonly MessageFields[];
}

interface VisibleTool {
  readonly tool: ToolDefinition;
  /** Of its definition in the body. */
  readonly path: readonly (string | number)[];
}

/**
 * The tools at the end of the conversation: those without `defer_loading`, and those that its blocks add, without those
 * that they remove. Added ones come last, so that the prompt's beginning stays the same while a conversation grows.
 * References to unknown tools have no effect.
 */
export function visibleToolsOf({ tools, messages }: ToolFields): VisibleTool[] {
  const given = tools ?? [];
  const known = new Map<string, VisibleTool>();
  const visible = new Map<string, VisibleTool>();
  // The client expects Anthropic's service to search, which nothing does here.
  const isSearched = given.some((tool) => !isOwn(tool) && tool.type.startsWith("tool_search_tool_"));
  for (const [index, tool] of given.entries()) {
    if (!isOwn(tool)) continue;
    const entry = { tool: toDefinition(tool), path: ["tools", index] };
    known.set(tool.name, entry);
    if (tool.defer_loading !== true || isSearched) visible.set(tool.name, entry);
  }
  const add = (name: string): void => {
    const entry = known.get(name);
    if (entry !== undefined) visible.set(name, entry);
  };
  for (const [message, { content }] of messages.entries()) {
    if (typeof content === "string") continue;
    for (const [position, block] of content.entries()) {
      if (block.type === "tool_result" && typeof block.content === "object" && block.content !== null) {
        for (const part of block.content) if (part.type === "tool_reference") add(part.tool_name);
      } else if (block.type === "tool_removal" && block.tool.type === "tool_reference") {
        visible.delete(block.tool.name);
      } else if (block.type === "tool_addition") {
        if (block.tool.type === "tool_reference") add(block.tool.name);
        if (block.tool.type !== "tool_definition" || !isOwn(block.tool.definition)) continue;
        const { definition } = block.tool;
        const path = ["messages", message, "content", position, "tool", "definition"];
        known.set(definition.name, { tool: toDefinition(definition), path });
        add(definition.name);
      }
    }
  }
  return [...visible.values()];
}

function toDefinition({
  name,
  description,
  input_schema: schema,
  strict,
}: Extract<GivenTool, { input_schema: object }>): ToolDefinition {
  return { name, description: description ?? null, parameters: schema, strict: strict === true };
}

/** Types of the tools that the answer does without. */
export function hostedTypesOf({ tools }: Pick<ToolFields, "tools">): string[] {
  return [...new Set((tools ?? []).flatMap((tool) => (isOwn(tool) ? [] : [tool.type])))];
}
