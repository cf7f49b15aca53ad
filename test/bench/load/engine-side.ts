/** The engine under a load: in this process, or behind HTTP. */
import { createSamplingParams } from "../../../engine/index.ts";
import { benchConfig, withEngineOf } from "../engine-throughput.ts";
import { startServerProcess, untilReady } from "../server-process.ts";
import { engineOptions } from "../settings.ts";
import type { BenchDtype } from "../settings.ts";
import { shape } from "../shape.ts";
import { measureClosedLoop, type ClosedLoop, type LoadFigures } from "./closed-loop.ts";

/** As many sequences run together as clients send requests, up to this many. */
const MAX_SEQUENCES = 64;

export function measureInProcess(dtype: BenchDtype, loop: ClosedLoop): Promise<LoadFigures> {
  const limits = { maxModelLen: loop.promptTokens + loop.outputTokens + 1, maxNumSequences: MAX_SEQUENCES };
  return withEngineOf({ ...benchConfig(engineOptions(dtype)), ...limits }, (engine) => {
    let numRequests = 0;
    return measureClosedLoop(loop, shape.vocabSize, async (tokenIds, onTokens) => {
      const request = {
        requestId: `load-${numRequests++}`,
        prompt: { kind: "tokens" as const, tokenIds },
        samplingParams: createSamplingParams({ temperature: 0, maxTokens: loop.outputTokens, ignoreEos: true }),
      };
      for await (const output of engine.generate(request)) onTokens(output.tokenIds.length);
    });
  });
}

export async function measureOverHttp(dtype: BenchDtype, loop: ClosedLoop): Promise<LoadFigures> {
  const { model, numThreads, cacheFolder } = engineOptions(dtype);
  await using server = await startServerProcess({
    MODEL: model,
    DTYPE: dtype,
    NUM_THREADS: String(numThreads),
    CACHE_FOLDER: cacheFolder,
    MAX_MODEL_LEN: String(loop.promptTokens + loop.outputTokens + 1),
    MAX_NUM_SEQS: String(MAX_SEQUENCES),
  });
  await untilReady(server);
  return await measureClosedLoop(loop, shape.vocabSize, async (prompt, onTokens) => {
    const response = await fetch(`${server.url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ prompt, max_tokens: loop.outputTokens, temperature: 0, ignore_eos: true, stream: true }),
    });
    if (!response.ok || response.body === null) throw new Error(`/v1/completions answered ${response.status}.`);
    // Each event has one token; the last two, without one, are the end of the choice and of the stream.
    for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
      onTokens(text.split('"text":').length - 1);
    }
  });
}
