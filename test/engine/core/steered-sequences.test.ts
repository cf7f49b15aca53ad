import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { SampledLogprobs } from "../../../engine/contract/request-output.ts";
import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "./golden-engine.ts";
import type { GoldenModel } from "./golden-engine.ts";
import { writeRowProcessor } from "./row-processor.ts";
import type { RowProcessor } from "./row-processor.ts";

/** Forces a target token, and throws when a request has a given number of tokens. */
const forcing: RowProcessor = {
  name: "Forcing",
  keep: "return extraArgs.target === undefined ? undefined : { ...extraArgs, outputTokenIds };",
  steer: `
    logits.row(index).fill(-Infinity)[row.target] = 0;
    if (row.outputTokenIds.length === row.failAt) throw new Error("enough of it");`,
};

let folder: TemporaryFolder;
let golden: GoldenModel;
let className: string;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  golden = await buildGoldenModel("llama", folder.path);
  className = await writeRowProcessor(folder.path, forcing);
});

afterAll(() => folder[Symbol.asyncDispose]());

describe("a processor that fails during generation", () => {
  test("ends the request it served; steered and other requests continue through every later batch change", async () => {
    const { model, cases } = golden;
    const logitsProcessors = [{ className, options: {} }];
    using engine = await SteppedEngine.create(
      createWorkerOptions(model, { logitsProcessors, maxNumSequences: 5, maxNumBatchedTokens: 48 }),
    );
    const paramsOf = (index: number): Partial<SamplingParams> => {
      if (index % 3 === 0) return { maxTokens: 6 + index };
      return { maxTokens: 6 + index, extraArgs: { target: index, ...(index % 3 === 2 && { failAt: index }) } };
    };
    for (let index = 0; index < 15; index++) {
      engine.add(goldenRequest(`${index}`, cases[index % cases.length]!, model, paramsOf(index)));
      if (index % 4 === 3) engine.step();
    }
    await engine.runToEnd();
    const message = `The logits processor ${logitsProcessors[0]!.className} failed: enough of it`;
    const targets = (index: number, count: number): number[] => Array.from({ length: count }, () => index);
    const expectedOf = (index: number) => {
      if (index % 3 === 2) return [targets(index, index), { code: "logits_processor_failed", message }];
      if (index % 3 === 1) return [targets(index, 6 + index), null];
      return [cases[index % cases.length]!.greedyTokenIds.slice(0, 6 + index), null];
    };
    for (let index = 0; index < 15; index++) {
      expect([engine.tokensOf(`${index}`), engine.errorOf(`${index}`)]).toEqual(expectedOf(index));
    }
    expect(engine.stats).toMatchObject({ numRequestsRunning: 0, kvCacheUsage: 0 });
  });
});

describe("logprobs of a prompt", () => {
  /** The recorded prompt with its greedy continuation, whose logits the reference recorded. */
  async function promptLogprobs(budget: number): Promise<(readonly SampledLogprobs[])[]> {
    const { model, cases } = golden;
    using engine = await SteppedEngine.create(createWorkerOptions(model, { maxNumBatchedTokens: budget }));
    for (const recorded of cases) {
      const request = goldenRequest(recorded.name, recorded, model, { promptLogprobs: 2, maxTokens: 2 });
      engine.add({ ...request, promptTokenIds: [...recorded.promptTokenIds, ...recorded.greedyTokenIds] });
    }
    await engine.runToEnd();
    return cases.map(({ name, promptTokenIds, greedyTokenIds }) => {
      const { outputs } = engine.generations.get(name)!;
      expect(outputs.map((output) => output.promptLogprobs?.length)).toEqual([
        promptTokenIds.length + greedyTokenIds.length - 1,
        undefined,
      ]);
      return outputs[0]!.promptLogprobs!;
    });
  }

  test.for([7, 40, 512])("equal those of the recorded logits, with %i tokens a step", async (budget) => {
    const { model, cases } = golden;
    const all = await promptLogprobs(budget);
    cases.forEach(({ promptTokenIds, greedyTokenIds, logits }, index) => {
      const { vocabSize } = model.decoder;
      const continuation = all[index]!.slice(promptTokenIds.length - 1);
      expect(continuation.map(({ sampled }) => sampled.tokenId)).toEqual(greedyTokenIds);
      expect(all[index]!.slice(0, 3).map(({ sampled }) => sampled.tokenId)).toEqual(promptTokenIds.slice(1, 4));
      continuation.forEach(({ sampled, top }, position) => {
        const row = [...logits.subarray(position * vocabSize, (position + 1) * vocabSize)];
        const total = Math.log(row.reduce((sum, logit) => sum + Math.exp(logit), 0));
        expect(sampled.rank).toBe(1);
        expect(top).toHaveLength(2);
        expect(top[0]).toEqual(sampled);
        for (const { tokenId, logprob } of top) expect(logprob).toBeCloseTo(row[tokenId]! - total, 3);
      });
    });
  });

  test("do not change the generated tokens", async () => {
    const { model, cases } = golden;
    using engine = await SteppedEngine.create(createWorkerOptions(model));
    for (const recorded of cases) engine.add(goldenRequest(recorded.name, recorded, model, { promptLogprobs: 0 }));
    await engine.runToEnd();
    for (const { name, greedyTokenIds } of cases) expect(engine.tokensOf(name)).toEqual(greedyTokenIds);
  });
});
