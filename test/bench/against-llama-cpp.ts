/** Prompt and output tokens per second compared with node-llama-cpp, on weights quantised to as many bits. */
import { join } from "node:path";

import { decodeTokensPerSecond, prefillTokensPerSecond, withEngine } from "./engine-throughput.ts";
import { ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { measureLlamaCpp, requirePeer } from "./peers.ts";
import type { SpeedFigures } from "./peers.ts";
import {
  benchFolder,
  concurrencies,
  contextTokens,
  decodeTokens,
  engineOptions,
  numThreads,
  prefillTokens,
} from "./settings.ts";
import type { BenchDtype } from "./settings.ts";
import { writeGguf } from "./write-gguf.ts";

const pairs = [
  { dtype: "int8", quantisation: "q8_0", prefillTarget: 1.5 },
  { dtype: "int4", quantisation: "q4_0", prefillTarget: 0.8 },
] as const;
const decodeTarget = 2;

function measureEngine(dtype: BenchDtype): Promise<SpeedFigures> {
  return withEngine(engineOptions(dtype), async (engine) => {
    await prefillTokensPerSecond(engine, prefillTokens, 0); // Warms up, like the other side.
    const prefill = await prefillTokensPerSecond(engine, prefillTokens, 1);
    const decode: Record<number, number> = {};
    for (const concurrency of concurrencies) {
      decode[concurrency] = await decodeTokensPerSecond(engine, concurrency, contextTokens, decodeTokens);
    }
    return { prefillTokensPerSecond: prefill, decodeTokensPerSecond: decode };
  });
}

function summary({ prefillTokensPerSecond, decodeTokensPerSecond }: SpeedFigures): string {
  const decode = Object.entries(decodeTokensPerSecond).map(([count, speed]) => `${count}: ${speed.toFixed(1)}`);
  return `prefill ${prefillTokensPerSecond.toFixed(0)}, decode at ${decode.join(", ")} tok/s`;
}

export async function benchAgainstLlamaCpp(rounds: number): Promise<Figure[]> {
  requirePeer("node-llama-cpp");
  const figures: Figure[] = [];
  for (const { dtype, quantisation, prefillTarget } of pairs) {
    const gguf = join(benchFolder, `${quantisation}.gguf`);
    writeGguf(gguf, quantisation);
    const options = { threads: numThreads, prefillTokens, decodeTokens, contextTokens, concurrency: concurrencies };
    const ours: SpeedFigures[] = [];
    const theirs: SpeedFigures[] = [];
    for (let round = 0; round < rounds; round++) {
      const label = `round ${round + 1} of ${rounds}`;
      reportProgress(`${label}: llama.cpp ${quantisation} ...`);
      theirs.push(await measureLlamaCpp(gguf, options));
      reportProgress(`${label}: llama.cpp ${quantisation}: ${summary(theirs[round]!)}; engine ${dtype} ...`);
      ours.push(await measureEngine(dtype));
      reportProgress(`${label}: engine ${dtype}: ${summary(ours[round]!)}`);
    }
    const figure = (name: string, target: number, speed: (figures: SpeedFigures) => number): Figure =>
      ratioFigure({
        name: `${dtype} ${name} against llama.cpp ${quantisation}`,
        unit: "tok/s",
        ours: ours.map(speed),
        theirs: theirs.map(speed),
        target,
      });
    figures.push(
      figure(`prefill of ${prefillTokens}`, prefillTarget, (round) => round.prefillTokensPerSecond),
      ...concurrencies.map((concurrency) =>
        figure(`decode, ${concurrency} at once,`, decodeTarget, (round) => round.decodeTokensPerSecond[concurrency]!),
      ),
    );
  }
  return figures;
}
