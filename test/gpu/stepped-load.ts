/** An engine core over random weights, stepped with a constant number of sequences that decode. */
import { performance } from "node:perf_hooks";

import type { EngineConfig } from "../../engine/contract/config.ts";
import { createSamplingParams } from "../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../engine/contract/sampling-params.ts";
import type { EngineRequest } from "../../engine/core/engine-request.ts";
import { PagedDecoder } from "../../engine/decoder/paged-decoder.ts";
import type { BuiltModel } from "../../engine/models/built-model.ts";
import { IoBinding } from "../../engine/runtime/io-binding.ts";
import { Session } from "../../engine/runtime/session.ts";
import { createWorkerOptions, SteppedEngine } from "../engine/core/golden-engine.ts";
import type { ExperimentDevice } from "./experiment.ts";
import { medianOf } from "./timing.ts";

export interface StepTimes {
  /** Medians, in milliseconds. */
  readonly stepMs: number;
  /** Of it, in runs of sessions. */
  readonly runMs: number;
}

export function createSteppedEngine(
  model: BuiltModel,
  device: ExperimentDevice,
  maxModelLen: number,
  overrides: Partial<EngineConfig> = {},
): Promise<SteppedEngine> {
  const options = createWorkerOptions(model, { device, numThreads: null, maxNumBatchedTokens: 1024, ...overrides });
  return SteppedEngine.create({ ...options, config: { ...options.config, maxModelLen }, maxModelLen });
}

/** Distinct for every salt, so that no prefix is shared. */
function tokenRequest(
  requestId: string,
  vocabSize: number,
  numTokens: number,
  params: Partial<SamplingParams>,
): EngineRequest {
  const salt = Number.parseInt(requestId.replaceAll(/\D/g, "") || "0", 10);
  return {
    requestId,
    promptTokenIds: Array.from({ length: numTokens }, (_, index) => 2 + ((index * 37 + salt * 101) % (vocabSize - 4))),
    images: [],
    samplingParams: createSamplingParams({ temperature: 0, ignoreEos: true, ...params }),
    badWordsTokenIds: [],
    cacheSalt: null,
    grammar: null,
    seed: salt,
  };
}

/**
 * Adds a greedy request for this many tokens; returns its id.
 *
 * @param salt Another one for each request, so that no prefix is shared.
 */
export function addTokens(
  engine: SteppedEngine,
  vocabSize: number,
  numTokens: number,
  maxTokens: number,
  salt: number,
): string {
  const id = `${salt}`;
  engine.add(tokenRequest(id, vocabSize, numTokens, { maxTokens }));
  return id;
}

/** Adds that many requests and steps until all of them decode; then times steps. */
export function timeDecoding(
  engine: SteppedEngine,
  { vocabSize }: BuiltModel["decoder"],
  {
    numSequences,
    contextTokens,
    numSteps,
    salt,
  }: {
    readonly numSequences: number;
    readonly contextTokens: number;
    readonly numSteps: number;
    readonly salt: number;
  },
): StepTimes {
  const ids = Array.from({ length: numSequences }, (_, index) => `${salt}${String(index).padStart(4, "0")}`);
  for (const id of ids) engine.add(tokenRequest(id, vocabSize, contextTokens, { maxTokens: 8 * numSteps + 64 }));
  while (ids.some((id) => engine.generations.get(id)!.tokenIds.length < 2)) {
    if (!engine.step()) throw new Error("The engine has nothing to do, and not all sequences decode.");
    const failed = ids.map((id) => engine.errorOf(id)).find((error) => error != null);
    if (failed != null) throw new Error(`A sequence failed: ${failed.message}`);
  }
  const steps: number[] = [];
  const runs: number[] = [];
  for (let step = 0; step < numSteps; step++) {
    const runStart = runClock.totalMs;
    const startedAt = performance.now();
    engine.step();
    steps.push(performance.now() - startedAt);
    runs.push(runClock.totalMs - runStart);
  }
  engine.abort(...ids);
  while (engine.step());
  const sorted = (values: number[]): number[] => values.sort((left, right) => left - right);
  return { stepMs: medianOf(sorted(steps)), runMs: medianOf(sorted(runs)) };
}

/** Time of a prompt to its first token, in milliseconds. */
export function timePrefill(engine: SteppedEngine, vocabSize: number, numTokens: number, salt: number): number {
  const id = addTokens(engine, vocabSize, numTokens, 1, salt);
  const startedAt = performance.now();
  while (engine.step());
  const elapsed = performance.now() - startedAt;
  const error = engine.errorOf(id);
  if (error != null) throw new Error(`The prompt failed: ${error.message}`);
  return elapsed;
}

/** The parts of the last load that took time, in seconds. */
export const loadClock = { session: 0, warmUp: 0 };

const load = Session.load.bind(Session);
Session.load = (...args) => {
  const startedAt = performance.now();
  const session = load(...args);
  loadClock.session = (performance.now() - startedAt) / 1000;
  return session;
};

// oxlint-disable-next-line typescript/unbound-method -- called with its own `this`
const { warmUp } = PagedDecoder.prototype;
PagedDecoder.prototype.warmUp = function timedWarmUp(this: PagedDecoder): void {
  const startedAt = performance.now();
  warmUp.call(this);
  loadClock.warmUp = (performance.now() - startedAt) / 1000;
};

/** Time inside of runs, which end with the device's work: the rest of a step is the host's. */
export const runClock = { totalMs: 0 };

// oxlint-disable-next-line typescript/unbound-method -- called with its own `this`
const { run } = IoBinding.prototype;
IoBinding.prototype.run = function timedRun(this: IoBinding, ...args: Parameters<typeof run>): void {
  const startedAt = performance.now();
  try {
    run.apply(this, args);
  } finally {
    runClock.totalMs += performance.now() - startedAt;
  }
};
