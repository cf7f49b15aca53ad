import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "./golden-engine.ts";
import type { GoldenModel } from "./golden-engine.ts";

describe.for(["llama", "qwen2", "mistral", "llava-default", "llava-full"] as const)("%s", (name) => {
  let cache: TemporaryFolder;
  let golden: GoldenModel;

  beforeAll(async () => {
    cache = await createTemporaryFolder();
    golden = await buildGoldenModel(name, cache.path);
  });

  afterAll(() => cache[Symbol.asyncDispose]());

  test.for([1, 16, 512])("alone, with %i tokens a step, every prompt gets the reference's tokens", async (budget) => {
    const { model, cases } = golden;
    using engine = await SteppedEngine.create(createWorkerOptions(model, { maxNumBatchedTokens: budget }));
    for (const recorded of cases) {
      engine.add(goldenRequest(recorded.name, recorded, model));
      engine.runToEnd();
      expect(engine.tokensOf(recorded.name)).toEqual(recorded.greedyTokenIds);
    }
    expect(engine.stats).toMatchObject({ numRequestsRunning: 0, kvCacheUsage: 0 });
  });

  test.for([9, 16, 512])("eight at once, with %i tokens a step, get the same tokens", async (budget) => {
    const { model, cases } = golden;
    using engine = await SteppedEngine.create(createWorkerOptions(model, { maxNumBatchedTokens: budget }));
    const expected = new Map<string, readonly number[]>();
    for (let index = 0; index < 8; index++) {
      const recorded = cases[index % cases.length];
      engine.add(goldenRequest(`${index}`, recorded, model));
      expected.set(`${index}`, recorded.greedyTokenIds);
    }
    engine.runToEnd();
    for (const [requestId, tokenIds] of expected) expect(engine.tokensOf(requestId)).toEqual(tokenIds);
  });

  test("requests that join, leave and are aborted along the way change nobody else's tokens", async () => {
    const { model, cases } = golden;
    using engine = await SteppedEngine.create(
      createWorkerOptions(model, { maxNumBatchedTokens: 24, maxNumSequences: 5 }),
    );
    for (let index = 0; index < 24; index++) {
      const recorded = cases[index % cases.length];
      const maxTokens = index % 3 === 0 ? 5 : recorded.greedyTokenIds.length;
      engine.add(goldenRequest(`${index}`, recorded, model, { maxTokens }));
      for (let steps = 0; steps < index % 5; steps++) engine.step();
      if (index % 4 === 3) engine.abort(`${index - 2}`);
    }
    engine.runToEnd();
    for (const [requestId, { tokenIds, outputs }] of engine.generations) {
      const recorded = cases[Number(requestId) % cases.length];
      expect(tokenIds).toEqual(recorded.greedyTokenIds.slice(0, tokenIds.length));
      expect(["length", "abort"]).toContain(outputs.at(-1)?.finishReason);
    }
    expect(engine.stats).toMatchObject({ numRequestsRunning: 0, numRequestsWaiting: 0, kvCacheUsage: 0 });
  });
});
