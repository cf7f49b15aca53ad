/**
 * Many requests at once: whether the cost of a step and of the HTTP thread stays flat, and what a request takes of
 * memory. Costs are CPU time, so that other programs change them little.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

import type { EngineRequest } from "../../engine/core/engine-request.ts";
import { collectGarbage } from "../../engine/runtime/collect-garbage.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "../engine/core/golden-engine.ts";
import type { GoldenModel } from "../engine/core/golden-engine.ts";
import { limitFigure, median, plainFigure, ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { startServerProcess, untilReady } from "./server-process.ts";
import type { ServerProcess } from "./server-process.ts";
import { benchFolder } from "./settings.ts";

const FEW_WAITING = 10;
const MANY_WAITING = 10_000;
const NUM_RUNNING = 32;
const NUM_STEPS = 300;
const PROMPT_TOKENS = 256;
/** A step with 10,000 waiting may take this share longer. */
const STEP_TARGET = 0.9;

const FEW_STREAMS = 10;
const MANY_STREAMS = 1000;
/** Loads of few streams, one after the other, that are measured together. */
const FEW_TURNS = 20;
const STREAM_TOKENS = 32;
const STREAM_TARGET = 0.9;
const NUM_PROBES = 100;
const PROBE_EVERY_MS = 20;
const MAX_PROBE_MS = 250;
const KIBIBYTE = 1024;
/** USER_HZ, the unit of /proc/PID/stat on every common system. */
const TICKS_PER_SECOND = 100;

export async function benchScale(rounds: number): Promise<Figure[]> {
  return [...(await benchWaiting(rounds)), ...(await benchStreams(rounds))];
}

async function benchWaiting(rounds: number): Promise<Figure[]> {
  const golden = await buildGoldenModel("llama", join(benchFolder, "cache"));
  const few: number[] = [];
  const many: number[] = [];
  const bytes: number[] = [];
  for (let round = 0; round < rounds; round++) {
    using small = await engineWith(golden, FEW_WAITING);
    await collectGarbage();
    const before = process.memoryUsage().heapUsed;
    using large = await engineWith(golden, MANY_WAITING);
    await collectGarbage();
    bytes.push((process.memoryUsage().heapUsed - before) / MANY_WAITING / KIBIBYTE);
    few.push(1 / stepMs(small));
    many.push(1 / stepMs(large));
    reportProgress(`steps/ms with few waiting ${few.at(-1)!.toFixed(2)}, with many ${many.at(-1)!.toFixed(2)}`);
  }
  return [
    ratioFigure({
      name: `steps of ${NUM_RUNNING} with ${MANY_WAITING} waiting, against ${FEW_WAITING}`,
      unit: "steps/ms",
      ours: many,
      theirs: few,
      target: STEP_TARGET,
    }),
    plainFigure(`engine thread: a waiting request of ${PROMPT_TOKENS} tokens`, "KiB", bytes),
  ];
}

/** All running sequences have decoded once. */
async function engineWith(golden: GoldenModel, numWaiting: number): Promise<SteppedEngine> {
  const numRequests = NUM_RUNNING + numWaiting;
  const engine = await SteppedEngine.create(
    createWorkerOptions(golden.model, {
      maxNumSequences: NUM_RUNNING,
      maxNumBatchedTokens: 2048,
      maxNumWaiting: numRequests,
    }),
  );
  for (let index = 0; index < numRequests; index++) engine.add(requestOf(golden, index));
  while (engine.stats.numRequestsRunning < NUM_RUNNING) engine.step();
  for (let step = 0; step < NUM_RUNNING; step++) engine.step();
  return engine;
}

/** Those that run are short, so that they are not done before the last step; all others have long prompts. */
function requestOf(golden: GoldenModel, index: number): EngineRequest {
  const maxTokens = NUM_STEPS + 3 * NUM_RUNNING;
  const numPromptTokens = index < NUM_RUNNING ? 4 : PROMPT_TOKENS;
  const request = goldenRequest(`${index}`, golden.cases[0]!, golden.model, {
    maxTokens: Math.min(maxTokens, 500 - numPromptTokens),
    ignoreEos: true,
  });
  const promptTokenIds = Array.from({ length: numPromptTokens }, (_, place) => 5 + ((index + place) % 50));
  return { ...request, promptTokenIds, images: [] };
}

function stepMs(engine: SteppedEngine): number {
  const times: number[] = [];
  for (let step = 0; step < NUM_STEPS; step++) {
    const start = process.cpuUsage();
    engine.step();
    const { user, system } = process.cpuUsage(start);
    times.push((user + system) / 1000);
  }
  return median(times);
}

async function benchStreams(rounds: number): Promise<Figure[]> {
  await using server = await startServerProcess({
    MAX_NUM_SEQS: String(MANY_STREAMS),
    MAX_NUM_BATCHED_TOKENS: "2048",
    MAX_MODEL_LEN: "256",
  });
  await untilReady(server);
  // Memory and code that every load needs.
  await runStreams(server, MANY_STREAMS);
  const few: number[] = [];
  const many: number[] = [];
  const bytes: number[] = [];
  const waits: number[] = [];
  for (let round = 0; round < rounds; round++) {
    let seconds = 0;
    for (let turn = 0; turn < FEW_TURNS; turn++) seconds += (await runStreams(server, FEW_STREAMS)).cpuSeconds;
    few.push((FEW_TURNS * FEW_STREAMS * STREAM_TOKENS) / seconds);
    const load = await runStreams(server, MANY_STREAMS);
    many.push((MANY_STREAMS * STREAM_TOKENS) / load.cpuSeconds);
    bytes.push(load.grownBytes / MANY_STREAMS / KIBIBYTE);
    waits.push(load.probeMs);
  }
  return [
    ratioFigure({
      name: `tokens of ${MANY_STREAMS} open streams for a second of the service's CPU, against ${FEW_STREAMS}`,
      unit: "tok/s",
      ours: many,
      theirs: few,
      target: STREAM_TARGET,
    }),
    limitFigure({
      name: `median answer of /livez beside ${MANY_STREAMS} open streams`,
      unit: "ms",
      values: waits,
      comparison: "<=",
      limit: MAX_PROBE_MS,
    }),
    plainFigure("the service: an open stream, at the most", "KiB", bytes),
  ];
}

interface StreamLoad {
  readonly cpuSeconds: number;
  /** Growth of resident memory, at its largest. */
  readonly grownBytes: number;
  readonly probeMs: number;
}

async function runStreams(server: ServerProcess, numStreams: number): Promise<StreamLoad> {
  const before = readProcess(server.pid);
  let isDone = false;
  let largestBytes = 0;
  const probes: number[] = [];
  const probe = async (): Promise<void> => {
    while (probes.length < NUM_PROBES) {
      if (isDone) return;
      const start = performance.now();
      await (await fetch(`${server.url}/livez`)).arrayBuffer();
      probes.push(performance.now() - start);
      largestBytes = Math.max(largestBytes, readProcess(server.pid).residentBytes);
      await delay(PROBE_EVERY_MS);
    }
  };
  const probing = numStreams === MANY_STREAMS ? probe() : Promise.resolve();
  await Promise.all(Array.from({ length: numStreams }, () => readStream(server)));
  isDone = true;
  await probing;
  return {
    cpuSeconds: readProcess(server.pid).cpuSeconds - before.cpuSeconds,
    grownBytes: Math.max(0, largestBytes - before.residentBytes),
    probeMs: probes.length === 0 ? 0 : median(probes),
  };
}

async function readStream({ url }: ServerProcess): Promise<void> {
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ prompt: "a red", max_tokens: STREAM_TOKENS, ignore_eos: true, stream: true }),
  });
  if (!response.ok) throw new Error(`/v1/completions answered ${response.status}: ${await response.text()}`);
  await response.arrayBuffer();
}

function readProcess(pid: number): { readonly cpuSeconds: number; readonly residentBytes: number } {
  // The name of the program may contain spaces; the numbers follow its closing bracket.
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)!.split(" ");
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return {
    cpuSeconds: (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND,
    residentBytes: Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)![1]) * KIBIBYTE,
  };
}
