import { expect, test } from "vitest";

import type { ReasoningStart } from "../../../../engine/index.ts";
import {
  chooseReasoningFormat,
  reasoningFormats,
} from "../../../../functions/generation/parsed-output/model-formats.ts";
import { parseAll } from "./parsed.ts";

const formatNamed = (name: string) => reasoningFormats.find((format) => format.name === name)!;

test.for<readonly [string, ReasoningStart, string, string, string]>([
  ["qwen3", "before", "<think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes."],
  ["qwen3", "before", "\n<think>Hm.</think>Yes.", "Hm.", "Yes."],
  ["qwen3", "before", "Yes. <think>no</think>", "", "Yes. <think>no</think>"],
  ["qwen3", "before", "<thin ice", "", "<thin ice"],
  ["qwen3", "inside", "Hm.\n</think>\n\nYes.", "Hm.", "Yes."],
  ["qwen3", "inside", "<think>Hm.</think>Yes.", "Hm.", "Yes."],
  ["qwen3", "inside", "<think><think>Hm.</think>Yes.", "<think>Hm.", "Yes."],
  ["qwen3", "inside", "Hm. </thi", "Hm. </thi", ""],
  ["qwen3", "inside", "</think>Yes.", "", "Yes."],
  ["qwen3", "inside", "a</think>b</think>c", "a", "b</think>c"],
  ["qwen3", "continued", " and so on.</think>\n\nYes.", " and so on.", "Yes."],
  ["qwen3", "continued", "\nHm.</think>Yes.", "\nHm.", "Yes."],
  ["qwen3", "after", " and so on.", "", " and so on."],
  ["qwen3", "after", "Yes. </think>", "", "Yes. </think>"],
  ["mistral", "before", "[THINK]Hm.[/THINK]Yes.", "Hm.", "Yes."],
  ["seed_oss", "inside", "Hm.</seed:think>Yes.", "Hm.", "Yes."],
  ["gemma4", "before", "<|channel>thought\nHm.\n<channel|>Yes.", "Hm.", "Yes."],
  ["gemma4", "before", "<|channel>thought\n<channel|>Yes.", "", "Yes."],
  ["gemma4", "inside", "Hm.\n<channel|>Yes.", "Hm.", "Yes."],
  ["hunyuan_a13b", "before", "<think>\nHm.\n</think>\n<answer>\nYes.\n</answer>", "Hm.", "Yes."],
  ["hunyuan_a13b", "before", "<think>Hm.</think>Yes.\n", "Hm.", "Yes.\n"],
  ["hunyuan_a13b", "inside", "Hm.</think><answer>a </ans b\n</answer>\n", "Hm.", "a </ans b"],
  ["hunyuan_a13b", "after", "<answer>\nYes. \n</answer>", "", "Yes."],
  ["hunyuan_a13b", "after", "<answer>Yes. \n</answ", "", "Yes. \n</answ"],
  ["hunyuan_a13b", "after", "An <answer>a</answer>", "", "An <answer>a</answer>"],
])("%s, starting %s: %j", ([name, start, text, reasoning, content]) => {
  const parsing = { toolCalls: null, reasoning: formatNamed(name), includesReasoning: true };
  expect(parseAll(parsing, [text], start)).toEqual({ content, reasoning, calls: [] });
  expect(parseAll(parsing, Array.from(text), start)).toEqual({ content, reasoning, calls: [] });
  expect(parseAll({ ...parsing, includesReasoning: false }, [text], start)).toMatchObject({ content, reasoning: "" });
});

test.for([
  ["{% if enable_thinking %}<think>\n{% endif %}", "qwen3"],
  ["{{ content.split('</think>')[-1] }}", "deepseek_r1"],
  ["{{ '[THINK]' + block.thinking + '[/THINK]' }}", "mistral"],
  ["{%- if not enable_thinking -%}{{- '<|channel>thought\\n<channel|>' -}}{%- endif -%}", "gemma4"],
  ["{%- for part in text.split('<channel|>') -%}{{- part.split('<|channel>')[0] -}}{%- endfor -%}", "gemma4"],
  ["{{ '<think>\\n\\n</think>\\n<answer>\\n' + content + '\\n</answer>' }}", "hunyuan_a13b"],
  ["{{ message.content }}", null],
] as const)("the template %s has the format %s", ([template, name]) => {
  expect(chooseReasoningFormat(template)?.name ?? null).toBe(name);
});
