/** Cost of excluding repeated n-grams in a decode step of 32 sequences, after long outputs. */
import { BareLoop } from "./bare-loop.ts";
import { limitFigure, plainFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { sampleMs } from "./sampling.ts";
import type { Scenario } from "./sampling.ts";
import { contextTokens, decodeTokens, engineOptions } from "./settings.ts";
import { shape } from "./shape.ts";

const numRows = 32;
const numOutputTokens = 8000;
/** Of a step without it. */
const maxRatio = 1.05;

function scenario(name: string, extraArgs: Readonly<Record<string, number>>): Scenario {
  return { name, numOutputTokens, paramsOf: () => ({ temperature: 0, extraArgs }) };
}

const without = scenario("greedy", {});
const scenarios: readonly Scenario[] = [
  scenario("ngram_size 30, window_size 90", { ngram_size: 30, window_size: 90 }),
  scenario("no_repeat_ngram_size 100", { no_repeat_ngram_size: 100 }),
  scenario("no_repeat_ngram_size 2", { no_repeat_ngram_size: 2 }),
];

/** Ratios of a whole int8 step, sampling included, with and without the processor. */
export async function benchNoRepeatNgram(rounds: number): Promise<Figure[]> {
  const stepMs: number[] = [];
  const withoutMs: number[] = [];
  const costs = scenarios.map((each) => ({ each, ms: [] as number[] }));
  for (let round = 0; round < rounds; round++) {
    using loop = await BareLoop.create(engineOptions("int8"));
    stepMs.push((numRows * 1000) / loop.decodeTokensPerSecond(numRows, contextTokens, decodeTokens));
    withoutMs.push(sampleMs(shape.vocabSize, without));
    for (const { each, ms } of costs) ms.push(sampleMs(shape.vocabSize, each));
    reportProgress(`no_repeat_ngram, round ${round + 1} of ${rounds}`);
  }
  const figures = [
    plainFigure(`int8 decode step, ${numRows} at once`, "ms", stepMs),
    plainFigure(`sampling, greedy, ${numOutputTokens} tokens of output`, "ms", withoutMs),
  ];
  for (const { each, ms } of costs) {
    const values = ms.map((withMs, round) => (stepMs[round]! + withMs) / (stepMs[round]! + withoutMs[round]!));
    figures.push(
      plainFigure(`sampling, ${each.name}`, "ms", ms),
      limitFigure({
        name: `step with ${each.name}`,
        unit: "of one without",
        values,
        comparison: "<=",
        limit: maxRatio,
      }),
    );
  }
  return figures;
}
