/**
 * Tokens per second with drafts by prompt look-up against without. The model is random, so a logits processor writes the
 * answers: the figures show the speed for a share of right drafts, not how often a model repeats its prompt.
 */
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";

import { createSamplingParams } from "../../engine/index.ts";
import type { Engine } from "../../engine/index.ts";
import { benchConfig, benchPrompt, withEngineOf } from "./engine-throughput.ts";
import { plainFigure, ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { contextTokens, engineOptions } from "./settings.ts";
import { shape } from "./shape.ts";

const answerTokens = 120;
const numDraftTokens = 4;
const processor = `${fileURLToPath(new URL("scripted-processor.ts", import.meta.url))}:Scripted`;

interface Load {
  readonly name: string;
  readonly concurrency: number;
  readonly target: number;
  /** The answer to a prompt. */
  readonly scriptOf: (prompt: readonly number[]) => number[];
}

/** Tokens that no prompt has, none of them twice. */
const newToken = (index: number): number => shape.vocabSize - 1 - index;
const answer = (tokenAt: (index: number) => number): number[] =>
  Array.from({ length: answerTokens }, (_, i) => tokenAt(i));
const copy = (prompt: readonly number[]): number[] => answer((index) => prompt[index + 40]!);
/** 24 tokens of the prompt, then 6 others. */
const quotes = (prompt: readonly number[]): number[] =>
  answer((index) => (index % 30 < 24 ? prompt[(index * 7 - (index % 30) * 6) % 230]! : newToken(index)));
const nothing = (): number[] => answer(newToken);
/** Two neighbours of the prompt, and then not the token after them. */
const wrong = (prompt: readonly number[]): number[] =>
  answer((index) => (index % 3 === 2 ? newToken(index) : prompt[index]!));

const loads: readonly Load[] = [
  { name: "answers that copy the prompt", concurrency: 1, target: 2, scriptOf: copy },
  { name: "the same, two at once", concurrency: 2, target: 1.5, scriptOf: copy },
  { name: "24 copied tokens, then 6 new ones", concurrency: 1, target: 1.5, scriptOf: quotes },
  { name: "nothing matches", concurrency: 1, target: 0.98, scriptOf: nothing },
  { name: "all matches are wrong", concurrency: 1, target: 0.95, scriptOf: wrong },
  { name: "answers that copy the prompt, eight at once", concurrency: 8, target: 0.98, scriptOf: copy },
];

let numRequests = 0;

/** Between the first and the last token of each request. */
async function tokensPerSecond(engine: Engine, { concurrency, scriptOf }: Load, numDrafted: number): Promise<number> {
  const speeds = await Promise.all(
    Array.from({ length: concurrency }, async () => {
      const tokenIds = benchPrompt(contextTokens, numRequests);
      const extraArgs = { script: scriptOf(tokenIds), prompt_lookup_num_tokens: numDrafted };
      const outputs = engine.generate({
        requestId: `speculation-${numRequests++}`,
        prompt: { kind: "tokens", tokenIds },
        samplingParams: createSamplingParams({ temperature: 0, maxTokens: answerTokens, ignoreEos: true, extraArgs }),
      });
      let startMs = 0;
      for await (const output of outputs) if (output.tokenIds.length > 0) startMs ||= performance.now();
      return ((answerTokens - 1) * 1000) / (performance.now() - startMs);
    }),
  );
  return speeds.reduce((sum, speed) => sum + speed);
}

export async function benchSpeculation(numRounds: number): Promise<Figure[]> {
  const config = { ...benchConfig(engineOptions("int8")), logitsProcessors: [{ className: processor, options: {} }] };
  return withEngineOf(config, async (engine) => {
    await tokensPerSecond(engine, loads[0]!, numDraftTokens); // Warms up.
    const figures: Figure[] = [];
    for (const load of loads) {
      const ours: number[] = [];
      const theirs: number[] = [];
      const before = engine.stats.drafts;
      for (let round = 0; round < numRounds; round++) {
        theirs.push(await tokensPerSecond(engine, load, 0));
        ours.push(await tokensPerSecond(engine, load, numDraftTokens));
        reportProgress(`${load.name}, round ${round + 1} of ${numRounds}`);
      }
      const after = engine.stats.drafts;
      const numDrafts = after.numDrafts - before.numDrafts;
      const accepted = numDrafts === 0 ? 0 : (after.numAcceptedTokens - before.numAcceptedTokens) / numDrafts;
      figures.push(
        ratioFigure({
          name: `${load.name}, with and without drafts`,
          unit: "tokens/s",
          ours,
          theirs,
          target: load.target,
        }),
        plainFigure("  drafts of one answer", "", [numDrafts / numRounds / load.concurrency]),
        plainFigure(`  accepted tokens of a draft of ${numDraftTokens}`, "", [accepted]),
      );
    }
    return figures;
  });
}
