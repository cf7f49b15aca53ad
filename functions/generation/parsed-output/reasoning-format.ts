/** How models mark their thinking. A format is chosen from the chat template, or by REASONING_PARSER. */
import type { ReasoningMarkers } from "../../../engine/index.ts";

export interface ReasoningFormat extends ReasoningMarkers {
  readonly name: string;
}

/** Thinks if the output, or the end of the prompt, has `<think>`. */
const qwen3: ReasoningFormat = { name: "qwen3", start: "<think>", end: "</think>", startsInside: false };

/** Thinks from the first token on, also with templates that do not write `<think>`. */
const deepseekR1: ReasoningFormat = { ...qwen3, name: "deepseek_r1", startsInside: true };

const mistral: ReasoningFormat = { name: "mistral", start: "[THINK]", end: "[/THINK]", startsInside: false };

const seedOss: ReasoningFormat = {
  name: "seed_oss",
  start: "<seed:think>",
  end: "</seed:think>",
  startsInside: false,
};

const kimi: ReasoningFormat = { name: "kimi", start: "◁think▷", end: "◁/think▷", startsInside: false };

export const reasoningFormats: readonly ReasoningFormat[] = [qwen3, deepseekR1, mistral, seedOss, kimi];

/** Null for a template that knows no thinking. */
export function chooseReasoningFormat(template: string): ReasoningFormat | null {
  const marked = [mistral, seedOss, kimi, qwen3].find(({ start }) => template.includes(start));
  if (marked !== undefined) return marked;
  // Templates that only remove the thinking of earlier turns belong to models that always think.
  return template.includes(deepseekR1.end) ? deepseekR1 : null;
}
