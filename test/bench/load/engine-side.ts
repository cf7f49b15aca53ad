/** The engine under a load: in this process, or behind HTTP. */
import { createSamplingParams } from "../../../engine/index.ts";
import { benchConfig, withEngineOf } from "../engine-throughput.ts";
import { startServerProcess, untilReady } from "../server-process.ts";
import { engineOptions } from "../settings.ts";
import type { BenchDtype } from "../settings.ts";
import { shape } from "../shape.ts";
import { sendOverHttp } from "./http-load.ts";
import { createPrompts, runLoad, type Load, type LoadFigures } from "./run-load.ts";

/** As many sequences run together as clients send requests, up to this many. */
export const MAX_SEQUENCES = 64;

/** @param numCopies Of the model, which divide the threads; null leaves it to the engine. */
export function measureInProcess(dtype: BenchDtype, load: Load, numCopies: number | null = null): Promise<LoadFigures> {
  const options = engineOptions(dtype);
  const copies =
    numCopies === null ? {} : { dataParallelSize: numCopies, numThreads: Math.floor(options.numThreads / numCopies) };
  const limits = { maxModelLen: load.promptTokens + load.outputTokens + 1, maxNumSequences: MAX_SEQUENCES };
  return withEngineOf({ ...benchConfig(options), ...limits, ...copies }, (engine) => {
    const nextPrompt = createPrompts(load.promptTokens, shape.vocabSize);
    return runLoad(load, async (number, onTokens) => {
      const request = {
        requestId: `load-${number}`,
        prompt: { kind: "tokens" as const, tokenIds: nextPrompt() },
        samplingParams: createSamplingParams({ temperature: 0, maxTokens: load.outputTokens, ignoreEos: true }),
      };
      for await (const output of engine.generate(request)) onTokens(output.tokenIds.length);
    });
  });
}

/** @param checkpoint The bench's, where not given. */
export async function measureOverHttp(
  dtype: BenchDtype,
  load: Load,
  {
    checkpoint,
    numCopies = null,
  }: { readonly checkpoint?: string | undefined; readonly numCopies?: number | null } = {},
): Promise<LoadFigures> {
  const { model, numThreads, cacheFolder } = engineOptions(dtype);
  await using server = await startServerProcess({
    MODEL: checkpoint ?? model,
    DTYPE: dtype,
    ...(numCopies !== null && { DATA_PARALLEL_SIZE: String(numCopies) }),
    NUM_THREADS: String(Math.floor(numThreads / (numCopies ?? 1))),
    CACHE_FOLDER: cacheFolder,
    MAX_MODEL_LEN: String(load.promptTokens + load.outputTokens + 1),
    MAX_NUM_SEQS: String(MAX_SEQUENCES),
  });
  await untilReady(server);
  return await runLoad(load, sendOverHttp(server.url, undefined, load));
}
