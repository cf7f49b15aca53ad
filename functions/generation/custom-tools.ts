/** Custom tools, whose input is a text: the model sees functions with one argument. Chat completions and Responses. */
import { z } from "zod";

import type { JsonObject, ToolDefinition } from "../../engine/index.ts";
import { parseBoundedJson } from "../http/bounded-json.ts";
import type { ToolCallDelta } from "./parsed-output/parsed-delta.ts";
import { boundedText } from "./schemas/wire-types.ts";

/** Characters. The largest descriptions are manuals of a few thousand. */
export const MAX_DESCRIPTION_LENGTH = 65_536;

/** Characters, as many as the arguments of a call may have: a patch of several files. */
const MAX_CUSTOM_INPUT_LENGTH = 524_288;

/** The input in a call of a custom tool. */
export const customInput = boundedText(MAX_CUSTOM_INPUT_LENGTH);

export const customGrammar = z.object(
  {
    syntax: z.enum(["lark", "regex"], "must be lark or regex"),
    definition: boundedText(MAX_DESCRIPTION_LENGTH),
  },
  'must be an object: {"syntax": …, "definition": …}',
);

/** The only argument of a custom tool, as the model sees it. */
const inputName = "input";

/** A function with one text. A grammar is only shown: it would hold for the text within JSON, which has escapes. */
export function toTextFunction(
  name: string,
  description: string | null | undefined,
  grammar: z.output<typeof customGrammar> | null,
): ToolDefinition {
  const rule =
    grammar === null ? [] : [`The ${inputName} must match this ${grammar.syntax} grammar:\n${grammar.definition}`];
  return {
    name,
    description: [...(description ? [description] : []), ...rule].join("\n\n") || null,
    parameters: {
      type: "object",
      properties: { [inputName]: { type: "string" } },
      required: [inputName],
      additionalProperties: false,
    },
    strict: false,
  };
}

/** The text of a call of a custom tool. The arguments themselves if they have another form, or were cut off. */
export function textOfCustomCall(callArguments: string): string {
  const parsed = parseBoundedJson(callArguments);
  const { value } = parsed.kind === "parsed" ? parsed : { value: null };
  const text: unknown = typeof value === "object" && value !== null ? Reflect.get(value, inputName) : null;
  return typeof text === "string" ? text : callArguments;
}

/** The arguments of a call of a custom tool. */
export function argumentsOfCustomCall(text: string): JsonObject {
  return { [inputName]: text };
}

/** Holds the arguments of a choice's custom calls until each is complete, because its text is known only then. Mutable. */
export class HeldCustomCalls {
  readonly #names: ReadonlySet<string>;
  #open: { readonly index: number; json: string } | null = null;

  constructor(names: ReadonlySet<string>) {
    this.#names = names;
  }

  /** The pieces of chat completions' `tool_calls`. `isLast`: the choice has ended. */
  append(deltas: readonly ToolCallDelta[], isLast: boolean): object[] {
    const pieces = deltas.flatMap((delta) => this.#appendOne(delta));
    return isLast ? [...pieces, ...this.#close()] : pieces;
  }

  #appendOne({ index, start, arguments: json }: ToolCallDelta): object[] {
    if (start === undefined) {
      if (this.#open?.index !== index) return [{ index, function: { arguments: json } }];
      this.#open.json += json;
      return [];
    }
    const closed = this.#close();
    const { id, name } = start;
    if (!this.#names.has(name)) {
      return [...closed, { index, id, type: "function", function: { name, arguments: json } }];
    }
    this.#open = { index, json };
    return [...closed, { index, id, type: "custom", custom: { name, input: "" } }];
  }

  #close(): object[] {
    if (this.#open === null) return [];
    const { index, json } = this.#open;
    this.#open = null;
    return [{ index, custom: { input: textOfCustomCall(json) } }];
  }
}
