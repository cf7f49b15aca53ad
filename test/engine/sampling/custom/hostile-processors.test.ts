import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { SamplingParams } from "../../../../engine/contract/sampling-params.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "../../core/golden-engine.ts";
import type { GoldenModel } from "../../core/golden-engine.ts";

/** Damages everything that it is shown of the batch, in the way that a request names, and continues normally. */
const hostile = `
import { LogitsProcessor } from "fovea";

const harms = {
  shortens: ({ outputTokenIds }) => outputTokenIds.splice(0, 1),
  empties: ({ outputTokenIds }) => { outputTokenIds.length = 0; },
  lengthens: ({ outputTokenIds }) => outputTokenIds.push(7, 7, 7),
  overwrites: ({ outputTokenIds }) => outputTokenIds.fill(7),
  freezes: ({ outputTokenIds }) => Object.freeze(outputTokenIds),
  prompts: ({ promptTokenIds }) => promptTokenIds.fill(7),
  params: ({ params }) => Object.assign(params, { maxTokens: 1, temperature: 2 }),
  arguments: ({ params }) => Object.assign(params.extraArgs, { harm: "none" }),
  stops: ({ params }) => params.stopTokenIds.push(1, 2, 3, 4, 5),
  rows: (added) => { added.index = 0; },
};

export class Hostile extends LogitsProcessor {
  #added = [];
  #harm = () => {};
  #swallows = true;
  constructor(engineConfig, device, options) {
    super(engineConfig, device, options);
    engineConfig.maxNumSequences = 1;
    engineConfig.imageLimits.maxImagesPerPrompt = 0;
    options.seen = true;
  }
  isArgmaxInvariant() { return false; }
  updateState(update) {
    for (const added of update?.added ?? []) {
      const { harm, swallows } = added.params.extraArgs;
      this.#added.push(added);
      if (harm) { this.#harm = harms[harm]; this.#swallows = swallows; }
    }
    try {
      for (const list of update === null ? [] : [update.added, update.removed, update.moved]) list.length = 0;
    } catch {}
    for (const added of this.#added) {
      try { this.#harm(added); } catch (error) { if (!this.#swallows) throw error; }
    }
  }
  apply(logits) { return logits; }
}
`;

let folder: TemporaryFolder;
let golden: GoldenModel;
let reference: string;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  golden = await buildGoldenModel("llama", folder.path);
  await writeFile(join(folder.path, "hostile.mjs"), hostile);
  reference = JSON.stringify(await run([], {}));
});

afterAll(() => folder[Symbol.asyncDispose]());

/** Each reads its output so far in another way. */
const paramsOfOthers: readonly Partial<SamplingParams>[] = [
  { maxTokens: 12 },
  { maxTokens: 12, frequencyPenalty: 1.5, presencePenalty: 1 },
  { maxTokens: 12, repetitionPenalty: 1.8 },
  { maxTokens: 12, temperature: 0.8, seed: 3 },
  { maxTokens: 12, minTokens: 9 },
];

/** The results of the others, next to a request with these extra arguments that leaves before them. */
async function run(processors: readonly string[], extraArgs: SamplingParams["extraArgs"]) {
  const { model, cases } = golden;
  const logitsProcessors = processors.map((name) => ({
    className: `${join(folder.path, "hostile.mjs")}:${name}`,
    options: {},
  }));
  using engine = await SteppedEngine.create(createWorkerOptions(model, { logitsProcessors, maxNumSequences: 8 }));
  const first = cases[0]!;
  paramsOfOthers.forEach((params, index) => {
    const request = goldenRequest(`other ${index}`, cases[index % cases.length]!, model, params);
    engine.add({
      ...request,
      badWordsTokenIds: index === 0 ? [[first.greedyTokenIds[0]!, first.greedyTokenIds[1]!]] : [],
    });
  });
  engine.step();
  engine.add(goldenRequest("hostile", first, model, { maxTokens: 5, extraArgs }));
  await engine.runToEnd();
  expect(engine.stats).toMatchObject({ numRequestsRunning: 0, kvCacheUsage: 0 });
  const others = paramsOfOthers.map((_, index) => [
    engine.tokensOf(`other ${index}`),
    engine.errorOf(`other ${index}`),
  ]);
  return { others, hostile: engine.tokensOf("hostile"), error: engine.errorOf("hostile") };
}

const harms = "shortens empties lengthens overwrites freezes prompts params arguments stops rows".split(" ");

test.for(harms)("a processor that damages everything it sees (%s) changes no other answer", async (harm) => {
  expect(JSON.stringify(await run(["Hostile"], { harm, swallows: true }))).toBe(reference);
});

test.for(["prompts", "params", "arguments", "stops", "rows"])(
  "a write into shared data (%s) fails where it happens",
  async (harm) => {
    const { error } = await run(["Hostile"], { harm, swallows: false });
    expect(error?.code).toBe("logits_processor_failed");
    expect(error?.message).toMatch(
      /hostile\.mjs:Hostile failed: Cannot (add property|assign to read only property|modify frozen)/,
    );
  },
);
