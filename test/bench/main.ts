/**
 * `npm run bench [-- NAME ...]`: measures the claims the README makes and prints them as tables. Figures of speed are
 * ratios of two sides measured in turn in one run; nothing here gates a test.
 */
import { mkdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { DtypeName } from "../../engine/index.ts";
import { benchAccuracy } from "./accuracy.ts";
import { BareLoop } from "./bare-loop.ts";
import { decodeTokensPerSecond, prefillTokensPerSecond, withEngine } from "./engine-throughput.ts";
import { printTable, ratioFigure } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { benchMemory } from "./memory.ts";
import { benchStartUp } from "./start-up.ts";
import { measureLlamaCpp, requirePeers } from "./peers.ts";
import { writeBenchCheckpoint } from "./write-checkpoint.ts";
import { writeGguf } from "./write-gguf.ts";

const folder = fileURLToPath(new URL("../../.cache/bench/", import.meta.url));
const cacheFolder = join(folder, "cache");
const numThreads = Math.min(2, availableParallelism());
const rounds = 3;
const concurrencies = [1, 8, 32] as const;
const contextTokens = 256;
const decodeTokens = 48;
const prefillTokens = 512;
const quantisedDtypes = ["int8", "int4"] as const satisfies readonly DtypeName[];

function engineOptions(dtype: DtypeName) {
  return { model: writeBenchCheckpoint(join(folder, "smollm2-135m-random")), dtype, numThreads, cacheFolder };
}

/** What the engine keeps of the speed of its own session. */
async function benchEngine(): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const dtype of quantisedDtypes) {
    for (const concurrency of concurrencies) {
      const ours: number[] = [];
      const theirs: number[] = [];
      for (let round = 0; round < rounds; round++) {
        ours.push(
          await withEngine(engineOptions(dtype), async (engine) => {
            await decodeTokensPerSecond(engine, concurrency, 32, 8);
            return decodeTokensPerSecond(engine, concurrency, contextTokens, decodeTokens);
          }),
        );
        using loop = await BareLoop.create(engineOptions(dtype));
        theirs.push(loop.decodeTokensPerSecond(concurrency, contextTokens, decodeTokens));
      }
      const name = `${dtype} decode, ${concurrency} at once, against a bare loop`;
      figures.push(ratioFigure({ name, unit: "tok/s", ours, theirs, target: 0.9 }));
    }
  }
  return figures;
}

async function benchLlamaCpp(): Promise<Figure[]> {
  requirePeers();
  const pairs = [
    { dtype: "int8", quantisation: "q8_0", prefillTarget: 1.5 },
    { dtype: "int4", quantisation: "q4_0", prefillTarget: 0.8 },
  ] as const;
  const figures: Figure[] = [];
  for (const { dtype, quantisation, prefillTarget } of pairs) {
    const gguf = join(folder, `${quantisation}.gguf`);
    writeGguf(gguf, quantisation);
    const options = { threads: numThreads, prefillTokens, decodeTokens, contextTokens, concurrency: concurrencies };
    const ours = [];
    const theirs = [];
    for (let round = 0; round < rounds; round++) {
      theirs.push(await measureLlamaCpp(gguf, options));
      ours.push(
        await withEngine(engineOptions(dtype), async (engine) => {
          await prefillTokensPerSecond(engine, 64, 0);
          const prefill = await prefillTokensPerSecond(engine, prefillTokens, round + 1);
          const decode: Record<number, number> = {};
          for (const concurrency of concurrencies) {
            decode[concurrency] = await decodeTokensPerSecond(engine, concurrency, contextTokens, decodeTokens);
          }
          return { prefillTokensPerSecond: prefill, decodeTokensPerSecond: decode };
        }),
      );
    }
    figures.push(
      ratioFigure({
        name: `${dtype} prefill of ${prefillTokens} against llama.cpp ${quantisation}`,
        unit: "tok/s",
        ours: ours.map((round) => round.prefillTokensPerSecond),
        theirs: theirs.map((round) => round.prefillTokensPerSecond),
        target: prefillTarget,
      }),
      ...concurrencies.map((concurrency) =>
        ratioFigure({
          name: `${dtype} decode, ${concurrency} at once, against llama.cpp ${quantisation}`,
          unit: "tok/s",
          ours: ours.map((round) => round.decodeTokensPerSecond[concurrency]),
          theirs: theirs.map((round) => round.decodeTokensPerSecond[concurrency]),
          target: 2,
        }),
      ),
    );
  }
  return figures;
}

const benches: Readonly<Record<string, { readonly title: string; readonly run: () => Promise<Figure[]> }>> = {
  engine: { title: "Engine against a bare loop over the same session", run: benchEngine },
  "llama-cpp": { title: "Against node-llama-cpp on the same shape", run: benchLlamaCpp },
  "start-up": { title: "Start-up", run: () => benchStartUp(5) },
  memory: {
    title: "Resident memory",
    run: () => benchMemory(engineOptions("int8").model, ["int8", "int4", "float32"], folder),
  },
  accuracy: { title: "Answers of the shipped checkpoint", run: benchAccuracy },
};

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !(name in benches));
if (unknown.length > 0 || wanted.includes("--help")) {
  console.log(
    `Usage: npm run bench [-- NAME ...]\nNames: ${Object.keys(benches).join(", ")} (all where none is given)`,
  );
  process.exit(wanted.includes("--help") ? 0 : 2);
}
mkdirSync(folder, { recursive: true });
console.log(`${numThreads} threads, ${rounds} rounds; ratios are medians over rounds measured in turn.`);
for (const [name, { title, run }] of Object.entries(benches)) {
  if (wanted.length === 0 || wanted.includes(name)) printTable(title, await run());
}
