import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { createEngine, createSamplingParams } from "../../engine/index.ts";
import type { Engine, EngineStall, GenerationRequest, SamplingParams } from "../../engine/index.ts";
import { goldenEngineConfig } from "../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

const className = `${new URL("./looping-processor.ts", import.meta.url).pathname}:Looping`;

let folder: TemporaryFolder;

beforeAll(async () => {
  folder = await createTemporaryFolder();
});

afterAll(() => folder[Symbol.asyncDispose]());

function createLoopingEngine(onStall?: (stall: EngineStall | null) => void): Engine {
  const config = {
    ...goldenEngineConfig("llama", folder.path),
    logitsProcessors: [{ className, options: {} }],
    stepTimeoutMs: 1000,
  };
  return createEngine(config, { imageSources: [], ...(onStall && { onStall }) });
}

function ask(requestId: string, params: Partial<SamplingParams> = {}): GenerationRequest {
  return {
    requestId,
    prompt: { kind: "text", text: "Describe the picture.", addSpecialTokens: true },
    samplingParams: createSamplingParams({ temperature: 0, maxTokens: 16, ignoreEos: true, ...params }),
  };
}

async function tokensOf(engine: Engine, request: GenerationRequest): Promise<number[]> {
  const tokenIds: number[] = [];
  for await (const output of engine.generate(request)) tokenIds.push(...output.tokenIds);
  return tokenIds;
}

test("a looping processor's requests end in bounded time, and the engine resumes when the loop ends", async () => {
  const stalls: (EngineStall | null)[] = [];
  const engine = createLoopingEngine((stall) => stalls.push(stall));
  try {
    await engine.ready;
    const expected = await tokensOf(engine, ask("before"));
    const sign = join(folder.path, "loop-ends");
    const looping = tokensOf(engine, ask("looping", { extraArgs: { loops_until: sign } }));
    const beside = tokensOf(engine, ask("beside", { maxTokens: 64 }));
    await expect(looping).rejects.toMatchObject({ code: "engine_stalled" });
    await expect(beside).rejects.toMatchObject({ code: "engine_stalled" });

    expect(engine.state).toBe("stalled");
    expect(engine.stall).toMatchObject({ activity: "logits processor", numRequests: 2, isLasting: true });
    // On a slow machine, an earlier step may have been a stall as well.
    const inProcessor = stalls.filter((stall) => stall?.activity === "logits processor");
    expect(inProcessor.map((stall) => stall?.isLasting)).toEqual([false, true]);
    expect(inProcessor[0]?.logitsProcessor).toEqual({ name: className, className: `file://${className}` });
    await expect(tokensOf(engine, ask("refused"))).rejects.toMatchObject({ code: "engine_stalled" });

    await writeFile(sign, "");
    await expect.poll(() => engine.state).toBe("ready");
    expect(engine.stall).toBe(null);
    expect(stalls.at(-1)).toBe(null);
    expect(await tokensOf(engine, ask("after"))).toEqual(expected);
    await expect.poll(() => engine.stats.numRequestsRunning).toBe(0);
  } finally {
    await engine.close();
  }
});

test("an engine that is stalled forever closes without waiting for its step", async () => {
  const stalled = Promise.withResolvers<void>();
  const engine = createLoopingEngine((stall) => {
    if (stall?.activity === "logits processor") stalled.resolve();
  });
  await engine.ready;
  const looping = tokensOf(engine, ask("looping", { extraArgs: { loops_until: join(folder.path, "never") } }));
  looping.catch(() => undefined);
  await stalled.promise;
  await engine.close();
  expect(engine.state).toBe("closed");
  await expect(looping).rejects.toThrow(/The engine is closed|One step of the engine/);
});
