/**
 * Time to the first token of a conversation's second turn, whose history of 900 tokens is cached, compared with that of
 * its first turn, which computes it; and of a prompt whose history a running conversation has computed.
 */
import { performance } from "node:perf_hooks";

import { createSamplingParams } from "../../engine/index.ts";
import type { Engine } from "../../engine/index.ts";
import { benchPrompt, withEngine } from "./engine-throughput.ts";
import { ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { benchDtypes, engineOptions } from "./settings.ts";

const historyTokens = 900;
const answerTokens = 16;
const newTokens = 24;
/** Nothing of the history is left to compute; the new tokens take one step. */
const target = 5;

let numRequests = 0;

interface Turn {
  readonly firstTokenMs: number;
  readonly tokenIds: readonly number[];
}

/** `onFirstToken` is awaited while the answer goes on. */
async function takeTurn(
  engine: Engine,
  promptTokenIds: readonly number[],
  onFirstToken: () => Promise<void> = async () => {},
): Promise<Turn> {
  const tokenIds: number[] = [];
  let firstTokenMs = 0;
  const startMs = performance.now();
  const outputs = engine.generate({
    requestId: `prefix-${numRequests++}`,
    prompt: { kind: "tokens", tokenIds: promptTokenIds },
    samplingParams: createSamplingParams({ temperature: 0, maxTokens: answerTokens, ignoreEos: true }),
  });
  for await (const output of outputs) {
    if (tokenIds.length === 0) {
      firstTokenMs = performance.now() - startMs;
      await onFirstToken();
    }
    tokenIds.push(...output.tokenIds);
  }
  return { firstTokenMs, tokenIds };
}

interface Round {
  readonly first: number;
  readonly second: number;
  readonly copied: number;
}

/** Turns per second, as if each ended with its first token. */
async function measureRound(engine: Engine, salt: number): Promise<Round> {
  const history = benchPrompt(historyTokens, salt);
  const question = (turn: number): number[] => benchPrompt(newTokens, 1000 + 10 * salt + turn);
  let copiedMs = 0;
  const first = await takeTurn(engine, [...history, ...question(0)], async () => {
    copiedMs = (await takeTurn(engine, [...history, ...question(1)])).firstTokenMs;
  });
  const conversation = [...history, ...question(0), ...first.tokenIds];
  const second = await takeTurn(engine, [...conversation, ...question(2)]);
  return { first: 1000 / first.firstTokenMs, second: 1000 / second.firstTokenMs, copied: 1000 / copiedMs };
}

export async function benchPrefix(numRounds: number): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const dtype of benchDtypes) {
    const rounds: Round[] = [];
    await withEngine(engineOptions(dtype), async (engine) => {
      await takeTurn(engine, benchPrompt(historyTokens, 9999)); // Warms up.
      for (let round = 0; round < numRounds; round++) {
        rounds.push(await measureRound(engine, 1 + round));
        reportProgress(`${dtype}, round ${round + 1} of ${numRounds}`);
      }
    });
    const theirs = rounds.map(({ first }) => first);
    const figure = (name: string, ours: readonly number[]): Figure =>
      ratioFigure({ name: `${dtype}, ${name}`, unit: "first tokens/s", ours, theirs, target });
    figures.push(
      figure(
        "second turn against first",
        rounds.map(({ second }) => second),
      ),
      figure(
        "history of one that runs against first",
        rounds.map(({ copied }) => copied),
      ),
    );
  }
  return figures;
}
