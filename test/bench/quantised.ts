/** Quantised uploads against our own int4 and int8 of the same shape: tokens per second, and starts. */
import { rmSync } from "node:fs";
import { join } from "node:path";
import { performance } from "node:perf_hooks";

import type { Engine } from "../../engine/index.ts";
import { decodeTokensPerSecond, prefillTokensPerSecond, withEngine } from "./engine-throughput.ts";
import type { EngineBenchOptions } from "./engine-throughput.ts";
import { plainFigure, ratioFigure, reportProgress, selectParts } from "./measure.ts";
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

/** The same kernels over the same number of bits; `DTYPE` is that of the vocabulary's projection too. */
const pairs: readonly { format: QuantisedFormat; dtype: BenchDtype }[] = [
  { format: "awq", dtype: "int4" },
  { format: "gptq", dtype: "int4" },
  { format: "gptq-act-order", dtype: "int4" },
  { format: "w4a16", dtype: "int4" },
  { format: "w8a8", dtype: "int8" },
  { format: "gptq-8bit", dtype: "int8" },
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
async function measureSpeeds(engine: Engine, salt: number): Promise<Speeds> {
  return {
    prefill: await prefillTokensPerSecond(engine, prefillTokens, salt),
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

function optionsOf(format: QuantisedFormat, dtype: BenchDtype): EngineBenchOptions {
  const cacheFolder = join(benchFolder, `cache-${format}`);
  return { model: writeQuantisedCheckpoint(format), dtype, numThreads, cacheFolder };
}

/** Both engines are loaded at once, so that the two sides of a round follow each other within seconds. */
async function comparePair(format: QuantisedFormat, own: EngineBenchOptions, rounds: number): Promise<Figure[]> {
  const { dtype } = own;
  const ours: Speeds[] = [];
  const theirs: Speeds[] = [];
  await withEngine(optionsOf(format, dtype as BenchDtype), (engine) =>
    withEngine(own, async (other) => {
      for (let round = -1; round < rounds; round++) {
        reportProgress(round < 0 ? `${format} and ${dtype}: warming up ...` : `round ${round + 1} of ${rounds} ...`);
        const speeds = [await measureSpeeds(engine, round), await measureSpeeds(other, round)] as const;
        if (round < 0) continue;
        ours.push(speeds[0]);
        theirs.push(speeds[1]);
      }
    }),
  );
  return measured.map((name) =>
    ratioFigure({
      name: `${format} ${names[name]} against ${dtype}`,
      unit: "tok/s",
      ours: ours.map((speeds) => speeds[name]),
      theirs: theirs.map((speeds) => speeds[name]),
      target: TARGET,
    }),
  );
}

export async function benchQuantised(rounds: number, only: readonly string[]): Promise<Figure[]> {
  const figures: Figure[] = [];
  const selected = selectParts(pairs, ({ format }) => format, only);
  for (const dtype of benchDtypes) {
    const formats = selected.filter((pair) => pair.dtype === dtype);
    if (formats.length === 0) continue;
    const own = { ...engineOptions(dtype), cacheFolder: join(benchFolder, `cache-own-${dtype}`) };
    figures.push(...(await measureStarts(dtype, own, rounds)));
    for (const { format } of formats) {
      figures.push(...(await measureStarts(format, optionsOf(format, dtype), rounds)));
      figures.push(...(await comparePair(format, own, rounds)));
    }
  }
  return figures;
}
