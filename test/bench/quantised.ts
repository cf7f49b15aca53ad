/**
 * Quantised uploads, also with 8-bit weights for prompts, against our own int4 and int8 of the same shape: tokens per
 * second, and starts.
 */
import { rmSync } from "node:fs";
import { join } from "node:path";
import { performance } from "node:perf_hooks";

import type { Engine } from "../../engine/index.ts";
import { decodeTokensPerSecond, prefillTokensPerSecond, withEngine } from "./engine-throughput.ts";
import type { EngineBenchOptions } from "./engine-throughput.ts";
import { median, plainFigure, ratioFigure, reportProgress, selectParts } from "./measure.ts";
import type { Figure } from "./measure.ts";
import {
  benchDtypes,
  benchFolder,
  contextTokens,
  decodeTokens,
  engineOptions,
  numThreads,
  prefillTokens,
} from "./settings.ts";
import type { BenchDtype } from "./settings.ts";
import { writeQuantisedCheckpoint, type QuantisedFormat } from "./write-quantised-checkpoint.ts";

/** A format and our own type of the same number of bits; `DTYPE` is that of the vocabulary's projection too. */
interface Pair {
  readonly format: QuantisedFormat;
  readonly dtype: BenchDtype;
  /** Left out for activations that are quantised anyway. */
  readonly hasFloatActivations?: true;
}

const pairs: readonly Pair[] = [
  { format: "awq", dtype: "int4", hasFloatActivations: true },
  { format: "gptq", dtype: "int4", hasFloatActivations: true },
  { format: "gptq-act-order", dtype: "int4", hasFloatActivations: true },
  { format: "w4a16", dtype: "int4", hasFloatActivations: true },
  { format: "w8a8", dtype: "int8" },
  { format: "gptq-8bit", dtype: "int8", hasFloatActivations: true },
];

const TARGET = 0.95;
const measured = ["prefill", "decode1", "decode8"] as const;
const names = {
  prefill: `prefill of ${prefillTokens}`,
  decode1: "decode, 1 at once,",
  decode8: "decode, 8 at once,",
} as const;

type Speeds = Readonly<Record<(typeof measured)[number], number>>;

/** @param salt Distinct for each call, so that no prefix is reused. */
/** A prompt takes a quarter of a second, which differs by a tenth from one to the next. */
const PROMPTS_OF_A_ROUND = 7;

async function measureSpeeds(engine: Engine, round: number): Promise<Speeds> {
  const prefill: number[] = [];
  for (let prompt = 0; prompt < PROMPTS_OF_A_ROUND; prompt++) {
    const salt = (round + 1) * PROMPTS_OF_A_ROUND + prompt;
    prefill.push(await prefillTokensPerSecond(engine, prefillTokens, salt));
  }
  return {
    prefill: median(prefill),
    decode1: await decodeTokensPerSecond(engine, 1, contextTokens, decodeTokens),
    decode8: await decodeTokensPerSecond(engine, 8, contextTokens, decodeTokens),
  };
}

/** Seconds until the engine is ready. */
async function secondsToStart(options: EngineBenchOptions): Promise<number> {
  const startMs = performance.now();
  return withEngine(options, () => Promise.resolve((performance.now() - startMs) / 1000));
}

/** A start that has to pack or quantise all weights, and starts that find them in the cache. */
async function measureStarts(name: string, options: EngineBenchOptions, rounds: number): Promise<Figure[]> {
  rmSync(options.cacheFolder, { recursive: true, force: true });
  const first = [await secondsToStart(options)];
  const warm: number[] = [];
  for (let round = 0; round < rounds; round++) warm.push(await secondsToStart(options));
  return [plainFigure(`${name}: first start`, "s", first), plainFigure(`${name}: start with a warm cache`, "s", warm)];
}

/** A checkpoint as it is served, under its name in the table. */
interface Side {
  readonly name: string;
  readonly options: EngineBenchOptions;
}

/** As stored, and with 8-bit weights for prompts where that makes a difference. */
function sidesOf({ format, dtype, hasFloatActivations }: Pair): Side[] {
  const cacheFolder = join(benchFolder, `cache-${format}`);
  const options = { model: writeQuantisedCheckpoint(format), dtype, numThreads, cacheFolder };
  const stored = { name: format, options: { ...options, promptDtype: "model" } } as const;
  if (hasFloatActivations !== true) return [stored];
  const name = `${format} with PROMPT_DTYPE=int8`;
  return [stored, { name, options: { ...options, cacheFolder: `${cacheFolder}-prompts`, promptDtype: "int8" } }];
}

/** All engines are loaded at once, so that the sides of a round follow each other within seconds. */
async function compare(sides: readonly Side[], own: EngineBenchOptions, rounds: number): Promise<Figure[]> {
  const { dtype } = own;
  const speeds: (readonly Speeds[])[] = [];
  await withEngines([own, ...sides.map(({ options }) => options)], async (engines) => {
    for (let round = -1; round < rounds; round++) {
      reportProgress(
        round < 0 ? `${sides[0]!.name} and ${dtype}: warming up ...` : `round ${round + 1} of ${rounds} ...`,
      );
      const ofRound = new Map<Engine, Speeds>();
      // In alternating order: a busy machine often slows down the later sides of a round.
      for (const engine of round % 2 === 0 ? engines : engines.toReversed()) {
        ofRound.set(engine, await measureSpeeds(engine, round));
      }
      if (round >= 0) speeds.push(engines.map((engine) => ofRound.get(engine)!));
    }
  });
  return sides.flatMap((side, index) =>
    measured.map((name) =>
      ratioFigure({
        name: `${side.name} ${names[name]} against ${dtype}`,
        unit: "tok/s",
        ours: speeds.map((ofRound) => ofRound[index + 1]![name]),
        theirs: speeds.map((ofRound) => ofRound[0]![name]),
        target: TARGET,
      }),
    ),
  );
}

async function withEngines(
  [first, ...others]: readonly EngineBenchOptions[],
  work: (engines: readonly Engine[]) => Promise<void>,
): Promise<void> {
  if (first === undefined) return work([]);
  await withEngine(first, (engine) => withEngines(others, (engines) => work([engine, ...engines])));
}

export async function benchQuantised(rounds: number, only: readonly string[]): Promise<Figure[]> {
  const figures: Figure[] = [];
  const selected = selectParts(pairs, ({ format }) => format, only);
  for (const dtype of benchDtypes) {
    const formats = selected.filter((pair) => pair.dtype === dtype);
    if (formats.length === 0) continue;
    const own = { ...engineOptions(dtype), cacheFolder: join(benchFolder, `cache-own-${dtype}`) };
    figures.push(...(await measureStarts(dtype, own, rounds)));
    for (const pair of formats) {
      const sides = sidesOf(pair);
      for (const { name, options } of sides) figures.push(...(await measureStarts(name, options, rounds)));
      figures.push(...(await compare(sides, own, rounds)));
    }
  }
  return figures;
}
