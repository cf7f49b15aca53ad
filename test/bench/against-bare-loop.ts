/** Compares the engine's speed with a bare loop over its own session. */
import { BareLoop } from "./bare-loop.ts";
import { decodeTokensPerSecond, withEngine } from "./engine-throughput.ts";
import { ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { benchDtypes, concurrencies, contextTokens, decodeTokens, engineOptions } from "./settings.ts";

const target = 0.9;

export async function benchAgainstBareLoop(rounds: number): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const dtype of benchDtypes) {
    for (const concurrency of concurrencies) {
      const name = `${dtype} decode, ${concurrency} at once, against a bare loop`;
      const ours: number[] = [];
      const theirs: number[] = [];
      for (let round = 0; round < rounds; round++) {
        ours.push(
          await withEngine(engineOptions(dtype), async (engine) => {
            await decodeTokensPerSecond(engine, concurrency, 32, 16); // Warms up.
            return decodeTokensPerSecond(engine, concurrency, contextTokens, decodeTokens);
          }),
        );
        using loop = await BareLoop.create(engineOptions(dtype));
        theirs.push(loop.decodeTokensPerSecond(concurrency, contextTokens, decodeTokens));
        const speeds = `${ours[round]!.toFixed(1)} and ${theirs[round]!.toFixed(1)} tok/s`;
        reportProgress(`${name}, round ${round + 1} of ${rounds}: ${speeds}`);
      }
      figures.push(ratioFigure({ name, unit: "tok/s", ours, theirs, target }));
    }
  }
  return figures;
}
