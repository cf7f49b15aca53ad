/** 10: 64 clients for thousands of steps, with preemption and shared prefixes; answers, memory and the host's time. */
import { join } from "node:path";

import { collectGarbage } from "../../../engine/runtime/collect-garbage.ts";
import { cudaMemoryBytes } from "../../../engine/runtime/cuda-memory.ts";
import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { createWorkerOptions, goldenRequest, SteppedEngine } from "../../engine/core/golden-engine.ts";
import { loadGoldens } from "../../support/checkpoints/goldens.ts";
import { buildModel } from "../../support/engine/shipped-models.ts";
import type { Experiment, ExperimentContext } from "../experiment.ts";
import { compareTokens } from "../near-ties.ts";
import { createRandom, randomBelow } from "../numbers.ts";
import { runClock } from "../stepped-load.ts";
import { medianOf } from "../timing.ts";

export const soak: Experiment = {
  id: "10",
  title: "64 clients for thousands of steps",
  run,
};

/** For what comes after the last step. */
const reservedSeconds = 40;
const nearTie = { cpu: 1e-5, cuda: 0.02 } as const;

async function run(context: ExperimentContext): Promise<void> {
  const { device, folder, report } = context;
  const isSmall = device === "cpu";
  const numSteps = isSmall ? 120 : 10_000;
  const numClients = isSmall ? 8 : 64;
  const blockSize = isSmall ? 8 : 256;
  const maxModelLen = isSmall ? 192 : 512;
  const cacheFolder = join(folder, "cache");
  const { checkpointFolder, cases } = await loadGoldens("llama");
  const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder });
  const dtype = context.dtype ?? (isSmall ? "float32" : "float16");
  const kvLayout = { kind: "paged", blockSize } as const;
  const model = await buildModel(checkpoint, { dtype, device, kvLayout, maxModelLen, cacheFolder, numThreads: 2 });
  const { vocabSize } = model.decoder;
  // Room for a third of what the clients hold together at their longest.
  const blocksOfOne = Math.ceil(maxModelLen / blockSize);
  const numBlocks = Math.max(blocksOfOne + 1, Math.ceil((numClients * blocksOfOne) / 3) + 1);
  const options = createWorkerOptions(model, {
    device,
    numBlocks,
    maxNumSequences: numClients,
    maxNumWaiting: numClients,
  });
  using engine = await SteppedEngine.create({ ...options, maxModelLen });
  const random = createRandom(77);
  const running = new Map<string, { readonly golden: number | null }>();
  let numStarted = 0;
  const start = (): void => {
    const id = `${numStarted++}`;
    const index = randomBelow(random, cases.length);
    const recorded = cases[index]!;
    const isGolden = numStarted % 4 === 0;
    const params = isGolden
      ? {}
      : {
          temperature: 0.8,
          maxTokens: 32 + randomBelow(random, 300),
          ignoreEos: true,
          topK: randomBelow(random, 2) * 20,
        };
    engine.add(goldenRequest(id, recorded, model, params, numStarted));
    running.set(id, { golden: isGolden ? index : null });
  };
  const memory = (): { readonly host: number; readonly device: number } => ({
    host: process.memoryUsage().rss / 2 ** 20,
    device: device === "cuda" ? cudaMemoryBytes(0).freeBytes / 2 ** 20 : 0,
  });

  const hostMs: number[] = [];
  const stepMs: number[] = [];
  let worstGap = 0;
  let numGoldens = 0;
  let settled: ReturnType<typeof memory> | null = null;
  for (let step = 0; step < numSteps && report.secondsLeft > reservedSeconds; step++) {
    while (running.size < numClients) start();
    const stepStart = performance.now();
    const runStart = runClock.totalMs;
    engine.step();
    const elapsed = performance.now() - stepStart;
    stepMs.push(elapsed);
    hostMs.push(elapsed - (runClock.totalMs - runStart));
    for (const [id, { golden }] of running) {
      const generation = engine.generations.get(id)!;
      const last = generation.outputs.at(-1);
      if (last?.finishReason == null) continue;
      if (last.error != null) report.check(`request ${id}`, false, last.error.message);
      if (golden !== null) {
        numGoldens += 1;
        worstGap = Math.max(worstGap, compareTokens(generation.tokenIds, cases[golden]!, vocabSize).gap);
      }
      running.delete(id);
      engine.generations.delete(id);
    }
    if (step !== Math.floor(numSteps / 5)) continue;
    await collectGarbage();
    settled = memory();
  }
  engine.abort(...running.keys());
  await engine.runToEnd();
  await collectGarbage();
  const ended = memory();
  const { numPreemptions, numPrefixCacheHits, numPrefixCacheQueries, kvCacheUsage } = engine.stats;
  report.figure("steps", stepMs.length, "steps");
  report.figure("requests", numStarted, "requests");
  report.figure("preemptions", numPreemptions, "preemptions");
  report.figure("prefix tokens found", numPrefixCacheHits / Math.max(1, numPrefixCacheQueries), "of those looked for");
  report.figure("a step", medianOf(stepMs.sort((left, right) => left - right)), "ms");
  const host = medianOf(hostMs.sort((left, right) => left - right));
  report.figure("a step's time on the host", host, "ms");
  report.check(
    "answers are the recorded ones",
    numGoldens > 0 && worstGap <= nearTie[device],
    `${numGoldens} answers, largest gap ${worstGap.toPrecision(2)}`,
  );
  report.check("sequences are preempted", numPreemptions > 0);
  report.check("no block is lost", kvCacheUsage === 0, `usage ${kvCacheUsage}`);
  if (settled === null) return;
  report.figure("host memory after a fifth", settled.host, "MiB");
  report.figure("host memory at the end", ended.host, "MiB");
  if (isSmall) return;
  report.check(
    "the device's memory does not grow",
    Math.abs(settled.device - ended.device) < 32,
    `${settled.device} to ${ended.device} MiB free`,
  );
  report.check(
    "the host's memory does not grow",
    ended.host - settled.host < 200,
    `${settled.host.toFixed()} to ${ended.host.toFixed()} MiB`,
  );
}
