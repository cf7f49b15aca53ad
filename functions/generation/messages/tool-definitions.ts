/** Wire schemas of the tools of POST /v1/messages, as `tools` and messages define them. */
import { z } from "zod";

import { MAX_DESCRIPTION_LENGTH } from "../custom-tools.ts";
import { parameters } from "../schemas/tool-fields.ts";
import { boundedText, flag, MAX_NAME_LENGTH, name } from "../schemas/wire-types.ts";

/** Anthropic's rule. */
const toolNamePattern = /^[a-zA-Z0-9_-]{1,128}$/;

/** A name that a tool may have. */
export const messageToolName = boundedText(MAX_NAME_LENGTH).regex(toolNamePattern, {
  error: "must be 1 to 128 letters, digits, underscores and hyphens",
  abort: true,
});

const ownTool = z.object({
  type: z.literal("custom").nullish(),
  name: messageToolName,
  description: boundedText(MAX_DESCRIPTION_LENGTH).nullish(),
  input_schema: parameters,
  strict: flag.nullish(),
  /** The model sees the tool only after a block that names it. */
  defer_loading: flag.nullish(),
});
/** A tool that Anthropic runs itself, or whose schema only its models know. The answer does without it. */
const hostedTool = z.object({
  type: boundedText(MAX_NAME_LENGTH).refine((type) => type !== "custom", { error: "must be custom", abort: true }),
});

export const givenTool = z.union([ownTool, hostedTool], 'must be an object: {"name": …, "input_schema": …}');

export type GivenTool = z.output<typeof givenTool>;

export function isOwn(tool: GivenTool): tool is z.output<typeof ownTool> {
  return "input_schema" in tool;
}

/** In the result of a search for tools: a tool that the search found. */
export const toolReferenceBlock = z.object({ type: z.literal("tool_reference"), tool_name: name });

const changeRule = "must be a supported type: tool_reference or tool_definition";
const namedTool = z.object({ type: z.literal("tool_reference"), name });
/** Of the servers that Anthropic's service connects to. There are none here, so they have no effect. */
const serverTools = z.object({ type: z.enum(["mcp_tool_reference", "mcp_toolset_reference"]) });
const definedTool = z.object({ type: z.literal("tool_definition"), definition: givenTool });

/** In a system message: the model sees a tool from here on, or no longer. */
export const toolChangeBlocks = [
  z.object({
    type: z.literal("tool_addition"),
    tool: z.discriminatedUnion("type", [namedTool, serverTools, definedTool], changeRule),
  }),
  z.object({
    type: z.literal("tool_removal"),
    tool: z.discriminatedUnion("type", [namedTool, serverTools], changeRule),
  }),
] as const;
