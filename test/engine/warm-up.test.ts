import { afterAll, beforeAll, expect, test } from "vitest";

import { startPhases } from "../../engine/contract/start-phase.ts";
import { createEngine, createSamplingParams } from "../../engine/index.ts";
import type { Engine, EngineConfig, EngineDependencies } from "../../engine/index.ts";
import { loadGoldens } from "../support/checkpoints/goldens.ts";
import { goldenEngineConfig } from "../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";
import { Failing } from "./failing-processor.ts";

let cache: TemporaryFolder;

beforeAll(async () => {
  cache = await createTemporaryFolder();
});

afterAll(() => cache[Symbol.asyncDispose]());

async function startEngine(
  name: string,
  overrides: Partial<EngineConfig> = {},
  dependencies: Partial<EngineDependencies> = {},
): Promise<Engine> {
  const engine = createEngine({ ...goldenEngineConfig(name, cache.path), warmUp: true, ...overrides }, dependencies);
  await engine.ready;
  return engine;
}

async function answer(engine: Engine, tokenIds: readonly number[], maxTokens: number): Promise<number[]> {
  const outputs = engine.generate({
    requestId: "request",
    prompt: { kind: "tokens", tokenIds },
    samplingParams: createSamplingParams({ temperature: 0, maxTokens, ignoreEos: true }),
  });
  const answered: number[] = [];
  for await (const { tokenIds: next } of outputs) answered.push(...next);
  return answered;
}

test.for([
  ["llama", { kvLayout: "slots" }],
  ["llama", { kvLayout: "paged" }],
  ["onnx-exports/smolvlm", {}],
  ["llava-default", {}],
] as const)("the warm-up of %s %o leaves no trace: counters are 0 and answers the same", async ([name, overrides]) => {
  const engine = await startEngine(name, overrides);
  expect(engine.stats).toMatchObject({
    numSteps: 0,
    numPromptTokens: 0,
    numGenerationTokens: 0,
    numPrefixCacheQueries: 0,
    numRequestsRunning: 0,
    kvCacheUsage: 0,
  });
  const golden = (await loadGoldens(name)).cases.find(({ pictures }) => pictures.length === 0)!;
  const { promptTokenIds, greedyTokenIds } = golden;
  expect(await answer(engine, promptTokenIds, greedyTokenIds.length)).toEqual(greedyTokenIds);
  expect(engine.stats.numPrefixCacheHits).toBe(0);
  await engine.close();
});

test("a warm-up fits into the shortest model", async () => {
  const engine = await startEngine("llama", { maxModelLen: 2 });
  expect(await answer(engine, [5], 1)).toHaveLength(1);
  await engine.close();
});

test("the warm-up does not run logits processors", async () => {
  const engine = await startEngine("llama", {}, { logitsProcessors: [Failing] });
  await expect(answer(engine, [5], 1)).rejects.toMatchObject({ code: "logits_processor_failed" });
  await engine.close();
});

test("every phase of a start is reported once, and a warm-up adds its first step and its first image", async () => {
  const phasesOf = async (warmUp: boolean, name = "llama"): Promise<string[]> => {
    const phases: string[] = [];
    const onPhase: EngineDependencies["onPhase"] = (phase, seconds) => {
      expect(seconds).toBeGreaterThanOrEqual(0);
      phases.push(phase);
    };
    await (await startEngine(name, { warmUp, dtype: "int8" }, { onPhase })).close();
    return phases.toSorted();
  };
  const optional: ReadonlySet<string> = new Set(["first_step", "first_image", "preload"]);
  const always: string[] = startPhases.filter((phase) => !optional.has(phase));
  expect(await phasesOf(true)).toEqual(always.concat("first_step").toSorted());
  expect(await phasesOf(false)).toEqual(always.toSorted());
  expect(await phasesOf(true, "llava-default")).toEqual(always.concat("first_step", "first_image").toSorted());
});

test("a chat template that refuses the warm-up's conversation does not keep the engine from starting", async () => {
  const engine = await startEngine("llama", { chatTemplate: "{{ raise_exception('I take no messages.') }}" });
  expect(engine.state).toBe("ready");
  await engine.close();
});
