/** Output tokens per second of one sequence against transformers.js, which is given the engine's own graph to run. */
import { join } from "node:path";
import { buildBenchModel } from "./bare-loop.ts";
import { benchPrompt, decodeTokensPerSecond, greedyTokenIds, withEngine } from "./engine-throughput.ts";
import { ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { measureTransformersJs, requirePeer } from "./peers.ts";
import {
  benchDtypes,
  benchFolder,
  contextTokens,
  decodeTokens,
  engineOptions,
  numThreads,
  rounds,
} from "./settings.ts";
import { writeTransformersJsModel } from "./write-transformers-js-model.ts";

const theirDtypes = { int8: "q8", int4: "q4" } as const;
const target = 4;

/** @throws Error where both sides do not generate the same tokens: they would not have run the same model. */
export async function benchAgainstTransformersJs(): Promise<Figure[]> {
  requirePeer("@huggingface/transformers");
  const figures: Figure[] = [];
  for (const dtype of benchDtypes) {
    const options = engineOptions(dtype);
    const folder = join(benchFolder, "transformers-js", dtype);
    const { decoder } = await buildBenchModel(options);
    const theirDtype = theirDtypes[dtype];
    writeTransformersJsModel({ folder, checkpoint: options.model, decoderPath: decoder.path, dtype: theirDtype });

    const promptTokenIds = benchPrompt(contextTokens, 0);
    const ours: number[] = [];
    const theirs: number[] = [];
    for (let round = 0; round < rounds; round++) {
      const label = `round ${round + 1} of ${rounds}`;
      reportProgress(`${label}: transformers.js ${theirDtype} ...`);
      const peer = await measureTransformersJs(folder, {
        dtype: theirDtype,
        threads: numThreads,
        decodeTokens,
        promptTokenIds,
      });
      theirs.push(peer.decodeTokensPerSecond);
      reportProgress(`${label}: transformers.js ${theirDtype}: ${theirs[round].toFixed(1)} tok/s; engine ${dtype} ...`);
      await withEngine(options, async (engine) => {
        const tokenIds = await greedyTokenIds(engine, promptTokenIds, decodeTokens); // Warms up as well.
        checkEqual(tokenIds, peer.tokenIds);
        ours.push(await decodeTokensPerSecond(engine, 1, contextTokens, decodeTokens));
      });
      reportProgress(`${label}: engine ${dtype}: ${ours[round].toFixed(1)} tok/s`);
    }
    const name = `${dtype} decode, 1 at once, against transformers.js ${theirDtype}`;
    figures.push(ratioFigure({ name, unit: "tok/s", ours, theirs, target }));
  }
  return figures;
}

function checkEqual(ours: readonly number[], theirs: readonly number[]): void {
  if (ours.join() === theirs.join()) return;
  throw new Error(`transformers.js generated ${theirs.join(" ")}; the engine ${ours.join(" ")}.`);
}
