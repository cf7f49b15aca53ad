/** Cost of parsing tool calls and thinking of 32 streams, as a share of a step of the engine. */
import { performance } from "node:perf_hooks";

import type { ToolDefinition } from "../../engine/index.ts";
import { toolCallFormats } from "../../functions/generation/parsed-output/model-formats.ts";
import { OutputParser } from "../../functions/generation/parsed-output/output-parser.ts";
import type { ToolCallFormat } from "../../functions/generation/parsed-output/tool-call-format.ts";
import { decodeTokensPerSecond, withEngine } from "./engine-throughput.ts";
import { plainFigure, ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { engineOptions } from "./settings.ts";

const numStreams = 32;
const decodeTokens = 32;
const contextTokens = 32;
/** Characters of a token of English text. */
const tokenLength = 4;
/** The parsing of all streams takes at most a hundredth of a step: the step is at least this many times as long. */
const leastRatio = 100;

const file = "def f(x):\n    return x * 2  # twice\n".repeat(60);
const tools: readonly ToolDefinition[] = [
  {
    name: "write_file",
    description: null,
    strict: false,
    parameters: { type: "object", properties: { path: { type: "string" }, text: { type: "string" } } },
  },
];
const json = JSON.stringify({ path: "a.py", text: file });
const thinking = `<think>${"The file needs one function. ".repeat(20)}</think>\n\nHere it is.\n`;

const texts: Readonly<Record<string, string>> = {
  hermes: `${thinking}<tool_call>\n{"name": "write_file", "arguments": ${json}}\n</tool_call>`,
  qwen3_coder: `${thinking}<tool_call>\n<function=write_file>\n<parameter=text>\n${file}</parameter>\n</function>\n</tool_call>`,
  mistral: `${thinking}[TOOL_CALLS][{"name": "write_file", "arguments": ${json}}]`,
  llama3_json: `<think></think>{"name": "write_file", "parameters": ${json}}`,
  pythonic: `<think></think>[write_file(text=${JSON.stringify(file)})]`,
};

/** @param rounds How often each format is measured. */
export async function benchOutputParsing(rounds: number): Promise<Figure[]> {
  const stepMs: number[] = [];
  const parseMs = new Map(Object.keys(texts).map((name): [string, number[]] => [name, []]));
  await withEngine(engineOptions("int8"), async (engine) => {
    for (let round = 0; round < rounds; round++) {
      reportProgress(`output parsing, round ${round + 1} of ${rounds}`);
      const tokensPerSecond = await decodeTokensPerSecond(engine, numStreams, contextTokens, decodeTokens);
      stepMs.push((numStreams * 1000) / tokensPerSecond);
      for (const [name, values] of parseMs) values.push(parsingMsPerStep(name));
    }
  });
  return [
    plainFigure("a step of 32 sequences, 135M parameters, int8", "ms", stepMs),
    ...Array.from(parseMs, ([name, values]) =>
      ratioFigure({
        name: `step, in times of its parsing: ${name}`,
        unit: "ms",
        ours: stepMs,
        theirs: values,
        target: leastRatio,
      }),
    ),
  ];
}

function parsingMsPerStep(name: string): number {
  const format = toolCallFormats.find((one): one is ToolCallFormat => one.name === name)!;
  const pieces = texts[name].match(new RegExp(`[^]{1,${tokenLength}}`, "g"))!;
  const reasoning = { start: "<think>", end: "</think>", startsInside: false };
  const parsing = { toolCalls: { format, tools, maxCalls: null }, reasoning, includesReasoning: true };
  const run = (): number => {
    const parsers = Array.from({ length: numStreams }, () => new OutputParser(parsing, "before"));
    const start = performance.now();
    for (const piece of pieces) for (const parser of parsers) parser.append(piece);
    return (performance.now() - start) / pieces.length;
  };
  // The first run compiles the code.
  run();
  return run();
}
