/** LoRA adapters that requests choose compute what the same adapters compute once they are merged into the weights. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createEngine, createSamplingParams } from "../../../engine/index.ts";
import type { Engine, EngineOptions } from "../../../engine/index.ts";
import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import type { StoredTensor } from "../../../engine/weights/stored-tensor.ts";
import { writeRandomAdapter } from "../../support/checkpoints/adapter-writer.ts";
import {
  chosenAdapter,
  chosenAdapters,
  chosenCases,
  hubCases,
  type HubCase,
  loraAdapter,
  writeHubCheckpoint,
} from "../../support/checkpoints/hub-checkpoints.ts";
import { writeVisionCheckpoint } from "../../support/checkpoints/quantised-checkpoints.ts";
import { compareHubAnswers, hubEngineConfig } from "../../support/engine/hub-answers.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

interface AdaptedModel {
  readonly config: EngineOptions;
  /** Folders of adapters by name. */
  readonly adapters: Readonly<Record<"all" | "some", string>>;
}

const otherParts = /visual|vision|experts\.|mlp\.gate\.|shared_expert_gate|embed|projector/;

async function writeModel(name: string, folder: string): Promise<AdaptedModel> {
  const model = join(folder, "model");
  await mkdir(model);
  await writeHubCheckpoint(name, "v4", model);
  return adaptModel(model, folder);
}

async function writeAwqModel(folder: string): Promise<AdaptedModel> {
  const model = join(folder, "model");
  await mkdir(model);
  await writeVisionCheckpoint(model);
  return adaptModel(model, folder);
}

/** An adapter of all linear layers of the decoder, and one of some, with another rank. */
async function adaptModel(model: string, folder: string): Promise<AdaptedModel> {
  const cacheFolder = join(folder, "cache");
  const { tensors } = await openCheckpoint(model, { cacheFolder });
  const matrices = (pattern: RegExp): StoredTensor[] =>
    [...tensors.values()].filter(({ name, shape }) => {
      const isMatrix = shape.length === 2 && name.endsWith(".weight");
      return isMatrix && pattern.test(name) && !otherParts.test(name);
    });
  const some = matrices(/layers\.\d+\..*(q_proj|v_proj|up_proj|w1|w3|in_proj)/);
  expect(some.length).toBeGreaterThan(1);
  return {
    config: { ...hubEngineConfig(model, cacheFolder), maxModelLen: 256 },
    adapters: {
      all: await writeRandomAdapter(join(folder, "all"), matrices(/layers\.\d+\.|^lm_head\./), { rank: 3, seed: 1 }),
      some: await writeRandomAdapter(join(folder, "some"), some, { rank: 5, seed: 2 }),
    },
  };
}

type Choice = "all" | "some" | null;

/** Some begin with the same tokens. */
const requests: readonly { readonly adapter: Choice; readonly prompt: readonly number[] }[] = (
  ["all", null, "some", "all", "some", null, "some"] as const
).map((adapter, index) => ({
  adapter,
  prompt: Array.from({ length: 28 + index }, (_, place) => 5 + ((place * 7 + (index % 2)) % 90)),
}));

interface Answer {
  readonly tokenIds: readonly number[];
  readonly logprobs: readonly number[];
}

async function ask(engine: Engine, prompt: readonly number[], adapter: Choice, requestId: string): Promise<Answer> {
  const tokenIds: number[] = [];
  const logprobs: number[] = [];
  const samplingParams = createSamplingParams({ temperature: 0, maxTokens: 6, ignoreEos: true, logprobs: 0 });
  const request = { requestId, prompt: { kind: "tokens", tokenIds: prompt }, samplingParams } as const;
  for await (const output of engine.generate({ ...request, ...(adapter !== null && { adapter }) })) {
    tokenIds.push(...output.tokenIds);
    logprobs.push(...(output.logprobs ?? []).map(({ sampled }) => sampled.logprob));
  }
  return { tokenIds, logprobs };
}

/** All at once, and then one by one, on the keys and values that the first time left behind. */
async function askAll(engine: Engine): Promise<readonly (readonly Answer[])[]> {
  await engine.ready;
  const together = await Promise.all(
    requests.map(({ prompt, adapter }, index) => ask(engine, prompt, adapter, `${index}`)),
  );
  const alone: Answer[] = [];
  for (const [index, { prompt, adapter }] of requests.entries()) {
    alone.push(await ask(engine, prompt, adapter, `${index} again`));
  }
  return [together, alone];
}

interface StartedEngine extends AsyncDisposable {
  readonly engine: Engine;
}

function start(options: EngineOptions): StartedEngine {
  const engine = createEngine(options);
  return { engine, [Symbol.asyncDispose]: () => engine.close() };
}

const modulesOf = ({ adapters }: AdaptedModel) => Object.entries(adapters).map(([name, path]) => ({ name, path }));

/** Different orders of float32 additions. */
const MAX_DIFFERENCE = 1e-4;

const paged = { kvLayout: "paged", blockSize: 16 } as const;

test.for<[string, EngineOptions]>([
  ["qwen2.5-vl", {}],
  ["qwen2.5-vl", paged],
  ["qwen3.5", {}],
  ["qwen3.5", paged],
  ["gemma4", {}],
  ["qwen3-moe", {}],
  ["lfm2", {}],
])("%s %o computes each request with the adapter that it chose", async ([name, form]) => {
  await using folder = await createTemporaryFolder();
  const model = await writeModel(name, folder.path);
  await using chosen = start({ ...model.config, ...form, loraModules: modulesOf(model) });
  const rounds = await askAll(chosen.engine);
  expect(chosen.engine.modelInfo?.adapters).toEqual(["all", "some"]);
  const answers = new Set<string>();
  for (const adapter of ["all", "some", null] as const) {
    const loraAdapter = adapter === null ? null : model.adapters[adapter];
    await using merged = start({ ...model.config, ...form, loraAdapter });
    await merged.engine.ready;
    for (const [index, { prompt, adapter: asked }] of requests.entries()) {
      const expected = await ask(merged.engine, prompt, null, `${index}`);
      answers.add(`${index}: ${expected.tokenIds.join()}`);
      if (asked !== adapter) continue;
      for (const round of rounds) {
        const { tokenIds, logprobs } = round[index]!;
        expect(tokenIds).toEqual(expected.tokenIds);
        const differences = logprobs.map((logprob, place) => Math.abs(logprob - expected.logprobs[place]!));
        expect(differences).toHaveLength(6);
        expect(Math.max(...differences)).toBeLessThan(MAX_DIFFERENCE);
      }
    }
  }
  // A prompt has another answer with each adapter.
  expect(answers.size).toBeGreaterThan(2 * requests.length);
});

test.for<EngineOptions>([{}, paged, { maxNumSequences: 1 }])(
  "requests with and without adapters are answered together like PEFT, %o",
  async (form) => {
    await using folder = await createTemporaryFolder();
    await using cache = await createTemporaryFolder();
    await writeHubCheckpoint(chosenAdapters.model, "v5", folder.path);
    const loraModules = chosenAdapters.names.map((name) => ({ name, path: chosenAdapter(name) }));
    const config = { ...hubEngineConfig(folder.path, cache.path), maxNumWaiting: 30, loraModules };
    await using started = start({ ...config, ...form });
    const cases = [...hubCases(chosenAdapters.model), ...chosenAdapters.names.flatMap(chosenCases)];
    const { numAnswers } = await compareHubAnswers(started.engine, folder.path, cases);
    expect(numAnswers).toBe(2 * cases.length);
  },
);

/** Of a conversation with pictures, those with the adapter `all`; the others without one. */
function casesByPictures(): readonly HubCase[] {
  const withAdapter = chosenCases("all");
  const plain = hubCases(chosenAdapters.model);
  return plain.map((golden, index) => {
    if (golden.pictures.length === 0) return golden;
    const { adapter: _, ...rest } = withAdapter[index]!;
    expect(rest.pictures).toEqual(golden.pictures);
    return rest;
  });
}

test.for<EngineOptions>([{}, paged])(
  "requests with pictures have the adapter for them unless they choose another, and the others have none, %o",
  async (form) => {
    await using folder = await createTemporaryFolder();
    await using cache = await createTemporaryFolder();
    await writeHubCheckpoint(chosenAdapters.model, "v5", folder.path);
    const loraModules = chosenAdapters.names.map((name) => ({
      name,
      path: chosenAdapter(name),
      isDefaultForImages: name === "all",
    }));
    const config = { ...hubEngineConfig(folder.path, cache.path), maxNumWaiting: 30, loraModules };
    await using started = start({ ...config, ...form });
    const cases = [...casesByPictures(), ...chosenCases("some")];
    expect(cases.filter(({ adapter, pictures }) => adapter === undefined && pictures.length > 0)).not.toHaveLength(0);
    const { numAnswers } = await compareHubAnswers(started.engine, folder.path, cases);
    expect(numAnswers).toBe(2 * cases.length);
    expect(started.engine.modelInfo?.imageAdapter).toBe("all");
  },
);

test("at most one adapter is that of pictures", () => {
  const loraModules = chosenAdapters.names.map((name) => ({ name, path: "x", isDefaultForImages: true }));
  expect(() => createEngine({ model: "x", loraModules })).toThrow("at most one has isDefaultForImages");
});

test.for<[string, "float" | "AWQ", EngineOptions]>([
  ["int8", "float", { dtype: "int8" }],
  ["int4", "float", { dtype: "int4", promptDtype: "model" }],
  ["int4 with prompts in 8 bits", "float", { dtype: "int4", promptDtype: "int8" }],
  ["AWQ's", "AWQ", { dtype: "auto" }],
])("%s weights stay those of the model beside adapters", async ([, stored, form]) => {
  await using folder = await createTemporaryFolder();
  const model = stored === "AWQ" ? await writeAwqModel(folder.path) : await writeModel("qwen2.5", folder.path);
  await using plain = start({ ...model.config, ...form });
  await using chosen = start({ ...model.config, ...form, loraModules: modulesOf(model) });
  await Promise.all([plain.engine.ready, chosen.engine.ready]);
  const answers = new Set<string>();
  for (const [index, { prompt }] of requests.entries()) {
    const expected = await ask(plain.engine, prompt, null, `${index}`);
    const { tokenIds, logprobs } = await ask(chosen.engine, prompt, null, `${index}`);
    expect(tokenIds).toEqual(expected.tokenIds);
    logprobs.forEach((logprob, place) => expect(logprob).toBeCloseTo(expected.logprobs[place]!, 4));
    for (const adapter of ["all", "some"] as const) {
      answers.add(`${index}: ${(await ask(chosen.engine, prompt, adapter, `${adapter} ${index}`)).tokenIds.join()}`);
    }
    answers.add(`${index}: ${tokenIds.join()}`);
  }
  expect(answers.size).toBeGreaterThan(2 * requests.length);
});

test.for<[string, string, RegExp]>([
  ["qwen2.5-vl", loraAdapter("qwen2.5-vl"), /^The LoRA adapter mine changes .*visual.*, which a request cannot choose/],
  ["llava-1.5", loraAdapter("llava-1.5"), /^The LoRA adapter mine replaces .*multi_modal_projector.*/],
  [
    "qwen2.5",
    loraAdapter("qwen2.5"),
    /^The LoRA adapter mine replaces model\.layers\.0\..*bias, which .* Make it the LoRA adapter of all requests/,
  ],
  ["qwen2.5", loraAdapter("qwen2.5-vl"), /^The LoRA adapter mine does not fit\..* Is this its base model\?/],
  ["qwen2.5", "no/such/folder", /^The LoRA adapter mine cannot be loaded\. There is no folder no\/such\/folder/],
])("%s is not started with an adapter that requests cannot choose", async ([name, path, message]) => {
  await using folder = await createTemporaryFolder();
  await writeHubCheckpoint(name, "v4", folder.path);
  await using cache = await createTemporaryFolder();
  const config = hubEngineConfig(folder.path, cache.path);
  await using started = start({ ...config, loraModules: [{ name: "mine", path }] });
  await expect(started.engine.ready).rejects.toMatchObject({
    setting: "loraModules",
    message: expect.stringMatching(message),
  });
});

test("an adapter of experts can only be merged", async () => {
  await using folder = await createTemporaryFolder();
  const model = await writeModel("qwen3-moe", folder.path);
  const { model: path, cacheFolder } = model.config;
  const { tensors } = await openCheckpoint(path!, { cacheFolder: cacheFolder! });
  const experts = [...tensors.values()].filter(({ name }) => name.includes("experts.0.up_proj"));
  expect(experts).not.toHaveLength(0);
  const adapter = await writeRandomAdapter(join(folder.path, "experts"), experts, { rank: 2, seed: 3 });
  await using started = start({ ...model.config, loraModules: [{ name: "mine", path: adapter }] });
  await expect(started.engine.ready).rejects.toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(
      /^The LoRA adapter mine changes .*experts\.0\.up_proj\.weight, which a request cannot/,
    ),
  });
});

test("a request for an adapter that the model lacks is rejected, and the others are answered", async () => {
  await using folder = await createTemporaryFolder();
  const model = await writeModel("qwen2.5", folder.path);
  await using started = start({ ...model.config, loraModules: modulesOf(model) });
  const { engine } = started;
  await engine.ready;
  const prompt = requests[0]!.prompt;
  const [unknown, known] = await Promise.allSettled([
    ask(engine, prompt, "none" as Choice, "unknown"),
    ask(engine, prompt, "some", "known"),
  ]);
  expect(unknown).toMatchObject({
    status: "rejected",
    reason: {
      code: "invalid_argument",
      parameter: "adapter",
      message: 'There is no adapter "none"; this model has all, some.',
    },
  });
  expect(known.status).toBe("fulfilled");
});
