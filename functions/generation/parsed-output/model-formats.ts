/** The formats of a model's output: those of the settings, or those that its chat template shows. */
import type { Engine, ReasoningMarkers } from "../../../engine/index.ts";
import type { AnswerTags } from "./answer-tags.ts";
import { gemma4Format } from "./formats/gemma4.ts";
import { glm45Format } from "./formats/glm45.ts";
import { hermesFormat } from "./formats/hermes.ts";
import { hunyuanA13bFormat } from "./formats/hunyuan-a13b.ts";
import { lfm2Format } from "./formats/lfm2.ts";
import { llama3JsonFormat } from "./formats/llama3-json.ts";
import { mistralFormat, mistralV11Format } from "./formats/mistral.ts";
import { pythonicFormat } from "./formats/pythonic.ts";
import { qwen3XmlFormat } from "./formats/qwen3-xml.ts";
import type { ToolCallFormat } from "./tool-call-format.ts";

export interface ModelFormats {
  readonly toolCalls: ToolCallFormat;
  /** Null for a model that does not mark its thinking. */
  readonly reasoning: ReasoningFormat | null;
}

/** The formats of the settings; null for those that the chat template shows. */
export interface ConfiguredFormats {
  readonly toolCalls: ToolCallFormat | null;
  readonly reasoning: ReasoningFormat | "none" | null;
}

export const toolCallFormats: readonly ToolCallFormat[] = [
  hermesFormat,
  qwen3XmlFormat,
  mistralFormat,
  mistralV11Format,
  llama3JsonFormat,
  pythonicFormat,
  gemma4Format,
  lfm2Format,
  glm45Format,
  hunyuanA13bFormat,
];

/** vLLM's other names of the same formats. */
export const otherFormatNames: ReadonlyMap<string, string> = new Map([
  ["qwen3_xml", "qwen3_coder"],
  ["llama4_json", "llama3_json"],
  ["llama4_pythonic", "pythonic"],
  ["glm47", "glm45"],
]);

/** What a chat template has only if its model writes calls in a format, the most specific format first. */
const signs: readonly (readonly [RegExp, ToolCallFormat])[] = [
  [/<function=/, qwen3XmlFormat],
  [/<\|tool_call>/, gemma4Format],
  [/\[TOOL_CALLS\][^]*\[ARGS\]|\[ARGS\][^]*\[TOOL_CALLS\]/, mistralV11Format],
  [/\[TOOL_CALLS\]/, mistralFormat],
  [/<arg_key>/, glm45Format],
  [/<tool_calls>/, hunyuanA13bFormat],
  [/<tool_call>/, hermesFormat],
  [/<\|tool_(?:list|call)_start\|>|List of tools: \[/, lfm2Format],
  [/\[\w+\(\w+=|func_name1?\(/, pythonicFormat],
  [/<\|python_tag\|>|"parameters"\s*:|'\{"name": '/, llama3JsonFormat],
];

/** A model whose template shows no tools gets the format that most fine-tuned models have. */
export function chooseToolCallFormat(template: string): ToolCallFormat {
  return signs.find(([sign]) => sign.test(template))?.[1] ?? hermesFormat;
}

const formatsOfTemplates = new WeakMap<object, ModelFormats>();

/** @param engine Its model is loaded, or its formats are those of a model without a chat template. */
export function modelFormatsOf(engine: Engine, configured?: ConfiguredFormats): ModelFormats {
  const shown = shownFormats(engine);
  if (configured === undefined) return shown;
  const { toolCalls, reasoning } = configured;
  return {
    toolCalls: toolCalls ?? shown.toolCalls,
    reasoning: reasoning === "none" ? null : (reasoning ?? shown.reasoning),
  };
}

function shownFormats({ modelInfo }: Engine): ModelFormats {
  const known = modelInfo === null ? undefined : formatsOfTemplates.get(modelInfo);
  if (known !== undefined) return known;
  const template = modelInfo?.chatTemplate ?? "";
  const formats = { toolCalls: chooseToolCallFormat(template), reasoning: chooseReasoningFormat(template) };
  if (modelInfo !== null) formatsOfTemplates.set(modelInfo, formats);
  return formats;
}

export interface ReasoningFormat extends ReasoningMarkers {
  readonly name: string;
  /** Around the answer behind the thinking, which has them or not. */
  readonly answer?: AnswerTags;
}

/** Thinks if the output, or the end of the prompt, has `<think>`. */
const qwen3: ReasoningFormat = { name: "qwen3", start: "<think>", end: "</think>", startsInside: false };

/** Like `qwen3`, with the answer between tags of its own. */
const hunyuanA13b: ReasoningFormat = {
  ...qwen3,
  name: "hunyuan_a13b",
  answer: { start: "<answer>", end: "</answer>" },
};

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

const gemma4: ReasoningFormat = {
  name: "gemma4",
  start: "<|channel>thought",
  end: "<channel|>",
  startsInside: false,
};

export const reasoningFormats: readonly ReasoningFormat[] = [
  qwen3,
  deepseekR1,
  mistral,
  seedOss,
  kimi,
  gemma4,
  hunyuanA13b,
];

/** Null for a template that knows no thinking. */
export function chooseReasoningFormat(template: string): ReasoningFormat | null {
  if (template.includes(hunyuanA13b.start) && template.includes(hunyuanA13b.answer!.start)) return hunyuanA13b;
  const marked = [mistral, seedOss, kimi, gemma4, qwen3].find(({ start }) => template.includes(start));
  if (marked !== undefined) return marked;
  // Some templates of Gemma 4 only remove the thinking of earlier turns, but its models think only if they are asked to.
  if (template.includes(gemma4.end)) return gemma4;
  // Templates that only remove the thinking of earlier turns belong to models that always think.
  return template.includes(deepseekR1.end) ? deepseekR1 : null;
}
