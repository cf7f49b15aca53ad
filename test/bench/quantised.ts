/** Quantised uploads against our own int4 and int8 of the same shape: tokens per second, and starts. */
import { rmSync } from "node:fs";
import { join } from "node:path";
import { performance } from "node:perf_hooks";

import { decodeTokensPerSecond, prefillTokensPerSecond, withEngine } from "./engine-throughput.ts";
import type { EngineBenchOptions } from "./engine-throughput.ts";
import { plainFigure, ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { benchFolder, contextTokens, decodeTokens, engineOptions, numThreads, prefillTokens } from "./settings.ts";
import { writeQuantisedCheckpoint, type QuantisedFormat } from "./write-quantised-checkpoint.ts";

/** The same kernels over the same number of bits; `DTYPE` is that of the vocabulary's projection too. */
const pairs: readonly { format: QuantisedFormat; dtype: "int4" | "int8" }[] = [
  { format: "awq", dtype: "int4" },
  { format: "gptq", dtype: "int4" },
  { format: "gptq-act-order", dtype: "int4" },
  { format: "w4a16", dtype: "int4" },
  { format: "w8a8", dtype: "int8" },
  { format: "gptq-8bit", dtype: "int8" },
];

const TARGET = 0.95;
const measured = ["prefill", "decode1", "decode8", "warmStart"] as const;
const names = {
  prefill: `prefill of ${prefillTokens}`,
  decode1: "decode, 1 at once,",
  decode8: "decode, 8 at once,",
  warmStart: "starts with a warm cache",
} as const;

type Speeds = Readonly<Record<(typeof measured)[number], number>>;

async function measure(options: EngineBenchOptions): Promise<Speeds> {
  const startMs = performance.now();
  return withEngine(options, async (engine) => {
    const warmStart = 1000 / (performance.now() - startMs);
    await prefillTokensPerSecond(engine, prefillTokens, 0);
    return {
      warmStart,
      prefill: await prefillTokensPerSecond(engine, prefillTokens, 1),
      decode1: await decodeTokensPerSecond(engine, 1, contextTokens, decodeTokens),
      decode8: await decodeTokensPerSecond(engine, 8, contextTokens, decodeTokens),
    };
  });
}

/** Seconds of a start that has to pack or quantise all weights. */
async function coldStart(options: EngineBenchOptions): Promise<number> {
  rmSync(options.cacheFolder, { recursive: true, force: true });
  const startMs = performance.now();
  await withEngine(options, async () => {});
  return (performance.now() - startMs) / 1000;
}

function optionsOf(format: QuantisedFormat, dtype: "int4" | "int8"): EngineBenchOptions {
  const cacheFolder = join(benchFolder, `cache-${format}`);
  return { model: writeQuantisedCheckpoint(format), dtype, numThreads, cacheFolder };
}

export async function benchQuantised(rounds: number): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const dtype of ["int4", "int8"] as const) {
    const own = { ...engineOptions(dtype), cacheFolder: join(benchFolder, `cache-own-${dtype}`) };
    figures.push(plainFigure(`${dtype}: first start`, "s", [await coldStart(own)]));
    for (const { format } of pairs.filter((pair) => pair.dtype === dtype)) {
      const options = optionsOf(format, dtype);
      figures.push(plainFigure(`${format}: first start`, "s", [await coldStart(options)]));
      const ours: Speeds[] = [];
      const theirs: Speeds[] = [];
      for (let round = 0; round < rounds; round++) {
        reportProgress(`round ${round + 1} of ${rounds}: ${format} and ${dtype} ...`);
        ours.push(await measure(options));
        theirs.push(await measure(own));
      }
      for (const name of measured) {
        figures.push(
          ratioFigure({
            name: `${format} ${names[name]} against ${dtype}`,
            unit: name === "warmStart" ? "1/s" : "tok/s",
            ours: ours.map((speeds) => speeds[name]),
            theirs: theirs.map((speeds) => speeds[name]),
            target: TARGET,
          }),
        );
      }
    }
  }
  return figures;
}
