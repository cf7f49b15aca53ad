/** Where the output of a model that thinks starts, and the form of an output that contains thinking. */
import type { ReasoningStart } from "../contract/request-output.ts";
import type { ReasoningMarkers } from "../contract/sampling-params.ts";
import type { StructuralFormat } from "../structured-output/structural-format.ts";
import type { StructuredOutput } from "../structured-output/structured-output.ts";

/** Line breaks between the thinking and the answer. */
const space: StructuralFormat = { type: "form", form: { kind: "regex", pattern: "[ \\t\\r\\n]{0,4}" } };

/**
 * Chat templates write the start marker at the end of the prompt to make the model think, and both markers to keep it
 * from thinking. Markers elsewhere in the prompt mean nothing: messages may contain them.
 */
export function reasoningStartOf(promptText: string, { start, end, startsInside }: ReasoningMarkers): ReasoningStart {
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
    from === "inside"
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
