/** Rules of tools that the wire schemas of Responses and Messages share. */
import type { z } from "zod";

import type { ToolChoice } from "./tool-fields.ts";

interface GivenTools {
  /** The functions, each with its index in the body's list. */
  readonly names: readonly { readonly index: number; readonly name: string }[];
  /** The names of the functions that the model sees. Default: all. */
  readonly visibleNames?: readonly string[];
  readonly choice: ToolChoice | null;
  /**
   * vLLM's `structured_outputs`, which prescribes a form of the whole answer. OpenAI's and Anthropic's formats are about
   * an answer in text, and agents send them with every turn.
   */
  readonly structuredOutputs: object | null | undefined;
}

/** Rejects equal names, a choice without its tool, and a form of the answer beside a required call. */
export function checkToolChoice(
  { names, visibleNames, choice, structuredOutputs }: GivenTools,
  context: z.RefinementCtx,
): void {
  const seen = new Set<string>();
  const add = (path: readonly (string | number)[], message: string): void => {
    context.addIssue({ code: "custom", path: [...path], message });
  };
  for (const { index, name } of names) {
    if (seen.has(name)) add(["tools", index, "name"], `is the name of two tools: ${name}`);
    seen.add(name);
  }
  if (choice === null || choice === "auto" || choice === "none") return;
  const visible = visibleNames === undefined ? seen : new Set(visibleNames);
  if (visible.size === 0)
    return add(
      ["tool_choice"],
      "can only require a call when tools has a function: the service runs no tools of its own",
    );
  if (typeof choice === "object" && !visible.has(choice.named)) {
    const problem = seen.has(choice.named)
      ? "names a tool that is not loaded"
      : "names a tool that tools does not have";
    add(["tool_choice"], `${problem}: ${choice.named}`);
  }
  if (structuredOutputs) add(["structured_outputs"], "cannot be combined with a tool_choice that requires a call");
}
