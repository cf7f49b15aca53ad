import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { loadGoldens } from "../../support/checkpoints/goldens.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "./golden-engine.ts";
import type { GoldenModel } from "./golden-engine.ts";

const checkpoints = [
  "llama",
  "qwen2",
  "qwen3",
  "qwen3-moe",
  "qwen3.5",
  "lfm2",
  "lfm3",
  "mistral",
  "llava-default",
  "llava-full",
  "onnx-exports/llama",
  "onnx-exports/llava",
] as const;

const slots = { kind: "slots" } as const;
const paged = { kind: "paged", blockSize: 16 } as const;

const variants = [
  ...checkpoints.map((name) => ({ name, kvLayout: slots })),
  ...checkpoints.filter((name) => !name.startsWith("onnx-exports/")).map((name) => ({ name, kvLayout: paged })),
];

describe.for(variants)("$name, $kvLayout.kind", ({ name, kvLayout }) => {
  let cache: TemporaryFolder;
  let golden: GoldenModel;

  beforeAll(async () => {
    cache = await createTemporaryFolder();
    golden = await buildGoldenModel(name, cache.path, "float32", kvLayout);
  });

  afterAll(() => cache[Symbol.asyncDispose]());

  test.for([1, 16, 512])("alone, with %i tokens a step, every prompt gets the reference's tokens", async (budget) => {
    const { model, cases } = golden;
    using engine = await SteppedEngine.create(createWorkerOptions(model, { maxNumBatchedTokens: budget }));
    for (const recorded of cases) {
      engine.add(goldenRequest(recorded.name, recorded, model));
      await engine.runToEnd();
      expect(engine.tokensOf(recorded.name)).toEqual(recorded.greedyTokenIds);
    }
    expect(engine.stats).toMatchObject({ numRequestsRunning: 0, kvCacheUsage: 0 });
  });

  test.for([9, 16, 512])("eight at once, with %i tokens a step, get the same tokens", async (budget) => {
    const { model, cases } = golden;
    using engine = await SteppedEngine.create(createWorkerOptions(model, { maxNumBatchedTokens: budget }));
    const expected = new Map<string, readonly number[]>();
    for (let index = 0; index < 8; index++) {
      const recorded = cases[index % cases.length]!;
      engine.add(goldenRequest(`${index}`, recorded, model));
      expected.set(`${index}`, recorded.greedyTokenIds);
    }
    await engine.runToEnd();
    for (const [requestId, tokenIds] of expected) expect(engine.tokensOf(requestId)).toEqual(tokenIds);
  });

  test("requests that join, leave or are aborted do not change the tokens of others", async () => {
    const { model, cases } = golden;
    using engine = await SteppedEngine.create(
      createWorkerOptions(model, { maxNumBatchedTokens: 24, maxNumSequences: 5 }),
    );
    for (let index = 0; index < 24; index++) {
      const recorded = cases[index % cases.length]!;
      const maxTokens = index % 3 === 0 ? 5 : recorded.greedyTokenIds.length;
      engine.add(goldenRequest(`${index}`, recorded, model, { maxTokens }));
      for (let steps = 0; steps < index % 5; steps++) engine.step();
      if (index % 4 === 3) engine.abort(`${index - 2}`);
    }
    await engine.runToEnd();
    for (const [requestId, { tokenIds, outputs }] of engine.generations) {
      const recorded = cases[Number(requestId) % cases.length]!;
      expect(tokenIds).toEqual(recorded.greedyTokenIds.slice(0, tokenIds.length));
      expect(["length", "abort"]).toContain(outputs.at(-1)?.finishReason);
    }
    expect(engine.stats).toMatchObject({ numRequestsRunning: 0, numRequestsWaiting: 0, kvCacheUsage: 0 });
  });

  test("a seeded request draws the same tokens alone, among others and in chunks", async () => {
    const { model, cases } = golden;
    const draw = { temperature: 1, topP: 0.95, topK: 40, logprobs: 2 };
    const requestOf = (index: number) =>
      goldenRequest(`${index}`, cases[index % cases.length]!, model, index % 3 === 2 ? {} : draw, 1000 + index);
    const alone: (readonly number[])[] = [];
    using engine = await SteppedEngine.create(createWorkerOptions(model));
    for (let index = 0; index < 8; index++) {
      engine.add(requestOf(index));
      await engine.runToEnd();
      alone.push(engine.tokensOf(`${index}`));
    }
    using batched = await SteppedEngine.create(createWorkerOptions(model, { maxNumBatchedTokens: 20 }));
    for (let index = 7; index >= 0; index--) batched.add(requestOf(index));
    await batched.runToEnd();
    expect(alone.map((_, index) => batched.tokensOf(`${index}`))).toEqual(alone);
  });

  test("logprobs equal those of the recorded logits", async () => {
    const { model, cases } = golden;
    const { vocabSize } = model.decoder;
    using engine = await SteppedEngine.create(createWorkerOptions(model));
    for (const recorded of cases) engine.add(goldenRequest(recorded.name, recorded, model, { logprobs: 3 }));
    await engine.runToEnd();
    for (const { name: caseName, logits, greedyTokenIds } of cases) {
      const { outputs } = engine.generations.get(caseName)!;
      // For exports, the first few logits are recorded.
      outputs.slice(0, logits.length / vocabSize).forEach(({ logprobs }, position) => {
        const row = [...logits.subarray(position * vocabSize, (position + 1) * vocabSize)];
        const total = Math.log(row.reduce((sum, logit) => sum + Math.exp(logit), 0));
        const { sampled, top } = logprobs![0]!;
        expect(sampled).toMatchObject({ tokenId: greedyTokenIds[position], rank: 1 });
        expect(top.map(({ rank }) => rank)).toEqual([1, 2, 3]);
        for (const { tokenId, logprob } of top) expect(logprob).toBeCloseTo(row[tokenId]! - total, 3);
      });
    }
  });

  test("a prompt whose run fails ends with an error, and its neighbours continue", async () => {
    const { model, cases } = golden;
    using engine = await SteppedEngine.create(createWorkerOptions(model));
    engine.add(goldenRequest("before", cases[0]!, model));
    engine.add({
      ...goldenRequest("broken", cases[0]!, model),
      promptTokenIds: [1, model.decoder.vocabSize + 5],
      images: [],
    });
    engine.add(goldenRequest("after", cases[0]!, model));
    await engine.runToEnd();
    expect(engine.errorOf("broken")).toMatchObject({ code: "runtime_failed" });
    expect(engine.tokensOf("before")).toEqual(cases[0]!.greedyTokenIds);
    expect(engine.tokensOf("after")).toEqual(cases[0]!.greedyTokenIds);
  });
});

describe("requests that arrive while others decode", () => {
  test("get their first token in the same step", async () => {
    await using cache = await createTemporaryFolder();
    const { model, cases } = await buildGoldenModel("llama", cache.path);
    using engine = await SteppedEngine.create(createWorkerOptions(model));
    const [first, second] = [cases[0]!, cases[1]!];
    engine.add(goldenRequest("first", first, model));
    engine.step();
    // Delivered between the decodes and the prompts of the next step.
    engine.add(goldenRequest("second", second, model));
    engine.step();
    expect(engine.tokensOf("first")).toEqual(first.greedyTokenIds.slice(0, 2));
    expect(engine.tokensOf("second")).toEqual(second.greedyTokenIds.slice(0, 1));
  });

  test("take the place of one that was aborted during the decodes a step later", async () => {
    await using cache = await createTemporaryFolder();
    const { model, cases } = await buildGoldenModel("llama", cache.path);
    const recorded = cases[0]!;
    using engine = await SteppedEngine.create(createWorkerOptions(model, { maxNumSequences: 2 }));
    engine.add(goldenRequest("stays", recorded, model));
    engine.add(goldenRequest("goes", recorded, model));
    while (engine.tokensOf("goes").length === 0) engine.step();
    engine.abort("goes");
    engine.add(goldenRequest("comes", recorded, model));
    engine.step();
    expect(engine.tokensOf("comes")).toEqual([]);
    await engine.runToEnd();
    for (const requestId of ["stays", "comes"]) expect(engine.tokensOf(requestId)).toEqual(recorded.greedyTokenIds);
  });

  test("wait for the next step if the step has a long prompt already", async () => {
    await using cache = await createTemporaryFolder();
    const { model } = await buildGoldenModel("llama", cache.path);
    using engine = await SteppedEngine.create(createWorkerOptions(model));
    const request = goldenRequest("", (await loadGoldens("llama")).cases[0]!, model, { maxTokens: 2 });
    for (const requestId of ["first", "second"]) {
      engine.add({ ...request, requestId, cacheSalt: requestId, promptTokenIds: Array.from({ length: 200 }, () => 5) });
    }
    engine.step();
    expect([engine.tokensOf("first"), engine.tokensOf("second")].map(({ length }) => length)).toEqual([1, 0]);
    engine.step();
    expect([engine.tokensOf("first"), engine.tokensOf("second")].map(({ length }) => length)).toEqual([2, 1]);
  });
});

test("a KV cache larger than the memory is rejected with both numbers", async () => {
  await using cache = await createTemporaryFolder();
  const { model } = await buildGoldenModel("llama", cache.path);
  const options = { ...createWorkerOptions(model), maxModelLen: 2 ** 20 };
  await expect(
    SteppedEngine.create({ ...options, config: { ...options.config, maxNumSequences: 2 ** 26 } }),
  ).rejects.toThrow("The KV cache of 67108864 sequences of 1048576 tokens does not fit into memory.");
});

test("blocks that cannot be allocated are rejected with the settings that decide their number", async () => {
  await using cache = await createTemporaryFolder();
  const { model } = await buildGoldenModel("llama", cache.path, "float32", { kind: "paged", blockSize: 16 });
  await expect(SteppedEngine.create(createWorkerOptions(model, { numBlocks: 2 ** 40 }))).rejects.toMatchObject({
    code: "invalid_configuration",
    setting: "gpuMemoryUtilization",
    message:
      "The KV cache of 1099511627776 blocks of 16 tokens does not fit into memory. Lower the number of blocks if it is " +
      "set, otherwise the memory of the KV cache or the GPU memory utilization.",
  });
});
