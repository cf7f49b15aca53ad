/** What adapters cost that requests may choose: loaded and not in use, one for all requests, and several at once. */
import { existsSync } from "node:fs";
import { join } from "node:path";

import type { EngineConfig } from "../../engine/index.ts";
import { writeRandomAdapter } from "../support/checkpoints/adapter-writer.ts";
import { benchConfig, decodeTokensPerSecond, prefillTokensPerSecond, withEngineOf } from "./engine-throughput.ts";
import { comparedFigure, median, plainFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import {
  benchDtypes,
  benchFolder,
  concurrencies,
  contextTokens,
  decodeTokens,
  engineOptions,
  prefillTokens,
} from "./settings.ts";
import type { BenchDtype } from "./settings.ts";
import { decoderTensors } from "./write-checkpoint.ts";

const RANK = 16;
const NUM_ADAPTERS = 8;

interface Side {
  readonly name: string;
  readonly numAdapters: number;
  /** Adapters that requests choose by turns; 0: none chooses any. */
  readonly numChosen: number;
}

const sides: readonly Side[] = [
  { name: "none", numAdapters: 0, numChosen: 0 },
  { name: "unused", numAdapters: NUM_ADAPTERS, numChosen: 0 },
  { name: "one in use", numAdapters: NUM_ADAPTERS, numChosen: 1 },
  { name: "all in use", numAdapters: NUM_ADAPTERS, numChosen: NUM_ADAPTERS },
];

/** Of all linear layers of the bench's decoder. */
async function writeAdapters(count: number): Promise<NonNullable<EngineConfig["loraModules"]>> {
  const matrices = decoderTensors("model.").filter(({ name }) => name.endsWith("_proj.weight"));
  const modules = [];
  for (let index = 0; index < count; index++) {
    const path = join(benchFolder, `adapter-${RANK}-${index}`);
    if (!existsSync(join(path, "adapter_model.safetensors"))) {
      await writeRandomAdapter(path, matrices, { rank: RANK, seed: index + 1 });
    }
    modules.push({ name: `adapter-${index}`, path });
  }
  return modules;
}

/** Tokens per second: of a prompt, and decoded by each number of sequences. */
async function measureSpeeds({ numAdapters, numChosen }: Side, dtype: BenchDtype, salt: number) {
  const config = { ...benchConfig(engineOptions(dtype)), loraModules: await writeAdapters(numAdapters) };
  const adapterOf = (index: number): string | null => (numChosen === 0 ? null : `adapter-${index % numChosen}`);
  return withEngineOf(config, async (engine) => {
    await decodeTokensPerSecond(engine, 1, contextTokens, decodeTokens, adapterOf); // Warms up.
    const speeds = [await prefillTokensPerSecond(engine, prefillTokens, salt, adapterOf(0))];
    for (const concurrency of concurrencies) {
      speeds.push(await decodeTokensPerSecond(engine, concurrency, contextTokens, decodeTokens, adapterOf));
    }
    return speeds;
  });
}

const names = [`prefill of ${prefillTokens}`, ...concurrencies.map((concurrency) => `decode, ${concurrency} at once`)];

export async function benchAdapters(numRounds: number): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const dtype of benchDtypes) {
    const measured = sides.map((side) => ({ side, rounds: [] as (readonly number[])[] }));
    for (let round = 0; round < numRounds; round++) {
      for (const { side, rounds } of measured) rounds.push(await measureSpeeds(side, dtype, round));
      reportProgress(`${dtype}, round ${round + 1} of ${numRounds}`);
    }
    const [without, ...others] = measured;
    for (const { side, rounds } of others) {
      for (const [index, name] of names.entries()) {
        const [ours, theirs] = [rounds, without!.rounds].map((all) => all.map((speeds) => speeds[index]!));
        const label = `${dtype}, ${side.numAdapters} adapters of rank ${RANK}, ${side.name}, ${name}`;
        figures.push(
          comparedFigure(label, "tokens/s", ours!, theirs!),
          plainFigure("  of the speed without adapters", "", [median(ours!.map((value, at) => value / theirs![at]!))]),
        );
      }
    }
  }
  return figures;
}
