/**
 * Output tokens per second of one sequence compared with transformers.js, on two graphs: an export in the hub's form,
 * which its users run, and the engine's own graph, whose kernels are the engine's.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";

import { buildBenchModel } from "./bare-loop.ts";
import { benchPrompt, decodeTokensPerSecond, greedyTokenIds, withEngine } from "./engine-throughput.ts";
import { ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { measureTransformersJs, requirePeer } from "./peers.ts";
import { benchDtypes, benchFolder, decodeTokens, engineOptions, numThreads } from "./settings.ts";
import type { BenchDtype } from "./settings.ts";
import { writeTransformersJsModel } from "./write-transformers-js-model.ts";

const theirDtypes = { int8: "q8", int4: "q4" } as const;
/** It copies keys and values at every step, so its speed depends on their number; both fit the bench's 1024. */
const contextLengths = [256, 896];
const target = 4;

const exportFolder = join(benchFolder, "transformers-js", "hub");

/** @throws Error that says how to create a missing export. */
export async function benchAgainstHubExport(rounds: number): Promise<Figure[]> {
  requirePeer("@huggingface/transformers");
  const { model } = engineOptions("int8");
  if (!existsSync(join(exportFolder, "onnx", "model_q4.onnx"))) {
    const script = "test/bench/peers/export-hub-model.py";
    throw new Error(
      `${exportFolder} is missing; ${script} says what it needs, then: python ${script} ${model} ${exportFolder}`,
    );
  }
  const figures: Figure[] = [];
  for (const dtype of benchDtypes) figures.push(...(await measure(rounds, dtype, exportFolder, () => undefined)));
  return figures;
}

/** @throws Error if the two sides generate different tokens, because then they did not run the same model. */
export async function benchAgainstSameGraph(rounds: number): Promise<Figure[]> {
  requirePeer("@huggingface/transformers");
  const figures: Figure[] = [];
  for (const dtype of benchDtypes) {
    const options = engineOptions(dtype);
    const folder = join(benchFolder, "transformers-js", dtype);
    const { decoder } = await buildBenchModel(options);
    const model = { folder, checkpoint: options.model, decoderPath: decoder.path, dtype: theirDtypes[dtype] };
    writeTransformersJsModel(model);
    figures.push(...(await measure(rounds, dtype, folder, checkEqual)));
  }
  return figures;
}

async function measure(
  rounds: number,
  dtype: BenchDtype,
  folder: string,
  check: (ours: readonly number[], theirs: readonly number[]) => void,
): Promise<Figure[]> {
  const figures: Figure[] = [];
  const theirDtype = theirDtypes[dtype];
  for (const contextTokens of contextLengths) {
    const name = `${dtype} decode, 1 at once after ${contextTokens}, against transformers.js ${theirDtype}`;
    const promptTokenIds = benchPrompt(contextTokens, 0);
    const peerOptions = { dtype: theirDtype, threads: numThreads, decodeTokens, promptTokenIds };
    const ours: number[] = [];
    const theirs: number[] = [];
    for (let round = 0; round < rounds; round++) {
      const peer = await measureTransformersJs(folder, peerOptions);
      theirs.push(peer.decodeTokensPerSecond);
      await withEngine(engineOptions(dtype), async (engine) => {
        check(await greedyTokenIds(engine, promptTokenIds, decodeTokens), peer.tokenIds); // Warms up as well.
        ours.push(await decodeTokensPerSecond(engine, 1, contextTokens, decodeTokens));
      });
      const speeds = `${ours[round]!.toFixed(1)} and ${theirs[round]!.toFixed(1)} tok/s`;
      reportProgress(`${name}, round ${round + 1} of ${rounds}: ${speeds}`);
    }
    figures.push(ratioFigure({ name, unit: "tok/s", ours, theirs, target }));
  }
  return figures;
}

function checkEqual(ours: readonly number[], theirs: readonly number[]): void {
  if (ours.join() === theirs.join()) return;
  throw new Error(`transformers.js generated ${theirs.join(" ")}; the engine ${ours.join(" ")}.`);
}
