/** Where the output of a model that thinks starts, and the form of an output that contains thinking. */
import type { Prompt } from "../contract/generation-request.ts";
import type { ReasoningStart } from "../contract/request-output.ts";
import type { ReasoningMarkers } from "../contract/sampling-params.ts";
import type { StructuralFormat, StructuredOutput } from "../structured-output/structured-output.ts";
import { continuedPart } from "./open-final-message.ts";

/** Line breaks between the thinking and the answer. */
const space: StructuralFormat = { type: "form", form: { kind: "regex", pattern: "[ \\t\\r\\n]{0,4}" } };

/**
 * Chat templates write the start marker at the end of the prompt to make the model think, and both markers to keep it
 * from thinking. Markers elsewhere in the prompt mean nothing: messages may contain them. A turn that the model continues
 * is within its thinking or after it, whatever the prompt ends with.
 */
export function reasoningStartOf(
  { text: promptText, prompt }: { readonly text: string; readonly prompt: Prompt },
  { start, end, startsInside }: ReasoningMarkers,
): ReasoningStart {
  const continued = prompt.kind === "chat" ? continuedPart(prompt) : null;
  if (continued?.kind === "thinking") return "continued";
  if (continued !== null && continued.text.trim() !== "") {
    return continued.text.lastIndexOf(start) > continued.text.lastIndexOf(end) ? "continued" : "after";
  }
  const text = promptText.trimEnd();
  if (text.endsWith(end)) return "after";
  return startsInside || text.endsWith(start) ? "inside" : "before";
}

/** The form of the whole output if `answer` is the form of the text after the thinking. */
export function withThinking(
  answer: StructuredOutput,
  { start, end }: ReasoningMarkers,
  from: ReasoningStart,
): StructuredOutput {
  if (from === "after") return answer;
  const rest: readonly StructuralFormat[] = [{ type: "text-through", marker: end }, space];
  const thinking: StructuralFormat =
    from === "inside" || from === "continued"
      ? { type: "sequence", parts: rest }
      : {
          type: "repetition",
          part: { type: "sequence", parts: [{ type: "text", text: start }, ...rest] },
          min: 0,
          max: 1,
        };
  return {
    kind: "structural",
    format: { type: "sequence", parts: [thinking, { type: "form", form: answer }] },
  };
}
