/**
 * A process of its own for `webgpu-slots.test.ts`: the Vulkan driver is chosen by the environment a process starts
 * with. Usage: node webgpu-slots.ts CACHE_FOLDER; prints a `WebGpuSlotsReport` as JSON.
 */
import type { EngineConfig } from "../../../engine/contract/config.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { loadGoldens } from "../../support/checkpoints/goldens.ts";
import { createWorkerOptions, goldenRequest, SteppedEngine } from "../core/golden-engine.ts";
import { buildFrom } from "../models/direct-build.ts";

export interface AnswerReport {
  readonly requestId: string;
  readonly numPromptTokens: number;
  readonly numCachedTokens: number | undefined;
  readonly tokenIds: readonly number[];
  /** By transformers, or by the CPU without reuse. */
  readonly expected: readonly number[];
}

export interface WebGpuSlotsReport {
  /** The recorded prompts, all at once, twice. */
  readonly recorded: readonly AnswerReport[];
  /** Different prompts of different lengths that come and go. */
  readonly mixed: readonly AnswerReport[];
  /** Equal prompts that come together. */
  readonly equal: readonly AnswerReport[];
  /** Message of the error for runs of 32 tokens. */
  readonly refusal: string;
  /** A conversation's next turn, and another that shares only its beginning. */
  readonly turns: readonly AnswerReport[];
}

const [cacheFolder] = process.argv.slice(2) as [string];
const { checkpointFolder, cases } = await loadGoldens("llama");
const webgpu = await buildFrom(checkpointFolder, { cacheFolder, device: "webgpu" });
const cpu = await buildFrom(checkpointFolder, { cacheFolder });

/** See webgpu-decoder.ts beside the tests of models for the chunks. */
const config: Partial<EngineConfig> = { maxNumBatchedTokens: 24, maxNumSequences: 5 };
using engine = await SteppedEngine.create(createWorkerOptions(webgpu, { ...config, device: "webgpu" }));
using reference = await SteppedEngine.create(createWorkerOptions(cpu, { enablePrefixCaching: false }));

function answerOf({ requestId, promptTokenIds }: EngineRequest, expected: readonly number[]): AnswerReport {
  return {
    requestId,
    numPromptTokens: promptTokenIds.length,
    numCachedTokens: engine.generations.get(requestId)!.outputs.at(-1)?.numCachedTokens,
    tokenIds: engine.tokensOf(requestId),
    expected,
  };
}

const requestOf = (requestId: string, promptTokenIds: readonly number[], maxTokens: number): EngineRequest => ({
  ...goldenRequest(requestId, cases[0]!, webgpu, { maxTokens }),
  promptTokenIds,
});

/** @param numStepsBetween Steps after each request before the next one comes. */
function ask(requests: readonly EngineRequest[], numStepsBetween = 0): AnswerReport[] {
  for (const request of requests) {
    reference.add(request);
    engine.add(request);
    for (let step = 0; step < numStepsBetween; step++) engine.step();
  }
  while (engine.step());
  while (reference.step());
  return requests.map((request) => answerOf(request, reference.tokensOf(request.requestId)));
}

const recorded = ["first", "second"].flatMap((turn) => {
  const requests = cases.map((golden) => goldenRequest(`${golden.name} ${turn}`, golden, webgpu));
  for (const request of requests) engine.add(request);
  while (engine.step());
  return requests.map((request, index) => answerOf(request, cases[index]!.greedyTokenIds));
});

const tokens = (seed: number, length: number): number[] =>
  Array.from({ length }, (_, index) => 5 + ((seed * 31 + index * 7) % 90));
const mixed = ask(
  [7, 40, 1, 19, 33, 12, 26, 3].map((length, index) =>
    requestOf(`mixed ${index}`, tokens(index + 1, length), 4 + ((index * 5) % 11)),
  ),
  2,
);
const shared = tokens(20, 22);
const equal = ask([0, 1, 2, 3].map((index) => requestOf(`equal ${index}`, shared, 6)));
const [first] = ask([requestOf("turn 0", tokens(40, 25), 8)]);
const kept = [...tokens(40, 25), ...first!.tokenIds];
const turns = ask([
  requestOf("turn 1", [...kept, 9, 11, 13], 6),
  requestOf("branch", [...kept.slice(0, 20), 50, 51, 52], 6),
]);

const longer = { ...config, maxNumBatchedTokens: 32, device: "webgpu" } as const;
const refusal = await SteppedEngine.create(createWorkerOptions(webgpu, longer)).then(
  () => "",
  (error: Error) => error.message,
);

const report: WebGpuSlotsReport = { recorded, mixed, equal, turns, refusal };
process.stdout.write(JSON.stringify(report));
