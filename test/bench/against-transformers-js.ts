/** Output tokens per second of one sequence against transformers.js, which is given the engine's own graph to run. */
import { join } from "node:path";
import { buildBenchModel } from "./bare-loop.ts";
import { benchPrompt, decodeTokensPerSecond, greedyTokenIds, withEngine } from "./engine-throughput.ts";
import { ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { measureTransformersJs, requirePeer } from "./peers.ts";
import { benchDtypes, benchFolder, decodeTokens, engineOptions, numThreads } from "./settings.ts";
import { writeTransformersJsModel } from "./write-transformers-js-model.ts";

const theirDtypes = { int8: "q8", int4: "q4" } as const;
/** It copies keys and values at every step, so that its speed depends on their number; both fit the bench's 1024. */
const contextLengths = [256, 896];
const target = 4;

/** @throws Error where both sides do not generate the same tokens: they would not have run the same model. */
export async function benchAgainstTransformersJs(rounds: number): Promise<Figure[]> {
  requirePeer("@huggingface/transformers");
  const figures: Figure[] = [];
  for (const dtype of benchDtypes) {
    const options = engineOptions(dtype);
    const folder = join(benchFolder, "transformers-js", dtype);
    const { decoder } = await buildBenchModel(options);
    const theirDtype = theirDtypes[dtype];
    writeTransformersJsModel({ folder, checkpoint: options.model, decoderPath: decoder.path, dtype: theirDtype });

    for (const contextTokens of contextLengths) {
      const name = `${dtype} decode, 1 at once after ${contextTokens}, against transformers.js ${theirDtype}`;
      const promptTokenIds = benchPrompt(contextTokens, 0);
      const peerOptions = { dtype: theirDtype, threads: numThreads, decodeTokens, promptTokenIds };
      const ours: number[] = [];
      const theirs: number[] = [];
      for (let round = 0; round < rounds; round++) {
        const peer = await measureTransformersJs(folder, peerOptions);
        theirs.push(peer.decodeTokensPerSecond);
        await withEngine(options, async (engine) => {
          const tokenIds = await greedyTokenIds(engine, promptTokenIds, decodeTokens); // Warms up as well.
          checkEqual(tokenIds, peer.tokenIds);
          ours.push(await decodeTokensPerSecond(engine, 1, contextTokens, decodeTokens));
        });
        const speeds = `${ours[round].toFixed(1)} and ${theirs[round].toFixed(1)} tok/s`;
        reportProgress(`${name}, round ${round + 1} of ${rounds}: ${speeds}`);
      }
      figures.push(ratioFigure({ name, unit: "tok/s", ours, theirs, target }));
    }
  }
  return figures;
}

function checkEqual(ours: readonly number[], theirs: readonly number[]): void {
  if (ours.join() === theirs.join()) return;
  throw new Error(`transformers.js generated ${theirs.join(" ")}; the engine ${ours.join(" ")}.`);
}
