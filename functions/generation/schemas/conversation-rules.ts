/** Rules of tools that the wire schemas of Responses and Messages share. */
import type { z } from "zod";

import type { ToolChoice } from "./tool-fields.ts";

interface GivenTools {
  /** The functions, each with its index in the body's list. */
  readonly names: readonly { readonly index: number; readonly name: string }[];
  readonly choice: ToolChoice | null;
  /** Path of the field that prescribes a form of the text; null if the text is free. */
  readonly formPath: readonly string[] | null;
}

/** Rejects equal names, a choice without its tool, and a form of the text beside a forced call. */
export function checkToolChoice({ names, choice, formPath }: GivenTools, context: z.RefinementCtx): void {
  const seen = new Set<string>();
  const add = (path: readonly (string | number)[], message: string): void => {
    context.addIssue({ code: "custom", path: [...path], message });
  };
  for (const { index, name } of names) {
    if (seen.has(name)) add(["tools", index, "name"], `is the name of two tools: ${name}`);
    seen.add(name);
  }
  if (choice === null || choice === "auto" || choice === "none") return;
  if (seen.size === 0) return add(["tool_choice"], "can only require a call when tools has a function");
  if (typeof choice === "object" && !seen.has(choice.named)) {
    add(["tool_choice"], `names a tool that tools does not have: ${choice.named}`);
  }
  if (formPath !== null) add(formPath, "cannot be combined with a tool_choice that requires a call");
}
