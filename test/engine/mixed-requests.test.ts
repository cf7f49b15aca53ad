/** Requests of all kinds that run together, over caches that earlier ones filled, are answered like each one alone. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createEngine } from "../../engine/index.ts";
import type { Engine, EngineError, EngineOptions, GenerationRequest, RequestOutput } from "../../engine/index.ts";
import { openCheckpoint } from "../../engine/weights/checkpoint.ts";
import { writeRandomAdapter } from "../support/checkpoints/adapter-writer.ts";
import { hubPictureReference, writeHubCheckpoint } from "../support/checkpoints/hub-checkpoints.ts";
import { hubEngineConfig } from "../support/engine/hub-answers.ts";
import { randomRequests } from "../support/engine/random-requests.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

const NUM_REQUESTS = 30;

/** Digits of logprobs after the point that are compared: float32 is added in different orders. */
const NUM_DIGITS = 2;

interface Choice {
  text: string;
  end: readonly unknown[];
  readonly tokenIds: number[];
  readonly logprobs: number[];
  /** The largest ones at the place of each token. */
  readonly largest: (readonly number[])[];
  promptLogprobs: readonly number[];
}

interface Answer {
  readonly choices: readonly Choice[];
  /** Its code; null for an answer. */
  readonly error: string | null;
}

function append(choice: Choice, output: RequestOutput): void {
  const { finishReason, stopReason, numPromptTokens, numImageTokens } = output;
  choice.text += output.text;
  choice.end = [finishReason, stopReason, numPromptTokens, numImageTokens];
  choice.tokenIds.push(...output.tokenIds);
  for (const { sampled, top } of output.logprobs ?? []) {
    choice.logprobs.push(sampled.logprob);
    choice.largest.push(top.map(({ logprob }) => logprob));
  }
  const ofPrompt = output.prompt?.logprobs;
  if (ofPrompt) choice.promptLogprobs = ofPrompt.map((each) => each?.sampled.logprob ?? 0);
}

async function ask(engine: Engine, request: GenerationRequest, leavesAfter: number | null = null): Promise<Answer> {
  const choices: Choice[] = [];
  let numOutputs = 0;
  try {
    for await (const output of engine.generate(request)) {
      const choice = { text: "", end: [], tokenIds: [], logprobs: [], largest: [], promptLogprobs: [] };
      append((choices[output.index] ??= choice), output);
      if (numOutputs++ === leavesAfter) break;
    }
  } catch (error) {
    return { choices: [], error: (error as EngineError).code };
  }
  return { choices, error: null };
}

/** Whether they differ from a token on that was drawn from the same logprobs: it fell within rounding. */
function differByDraw(left: Choice, right: Choice): boolean {
  const differs = left.tokenIds.findIndex((tokenId, index) => tokenId !== right.tokenIds[index]);
  const others = right.largest[differs];
  return others !== undefined && left.largest[differs]!.every((each, rank) => Math.abs(each - others[rank]!) < 1e-3);
}

/** The choice with logprobs that equal those within rounding. */
function rounded({ logprobs, promptLogprobs, ...exact }: Choice): unknown {
  const near = (each: number): unknown => expect.closeTo(each, NUM_DIGITS);
  return {
    ...exact,
    largest: expect.anything(),
    logprobs: logprobs.map(near),
    promptLogprobs: promptLogprobs.map(near),
  };
}

async function writeModel(name: string, folder: string, seed: number): Promise<EngineOptions> {
  const model = join(folder, "model");
  await mkdir(model);
  await writeHubCheckpoint(name, "v4", model);
  const cacheFolder = join(folder, "cache");
  const { tensors } = await openCheckpoint(model, { cacheFolder });
  const projections = /language_model.*layers\.\d+\..*(q_proj|v_proj|o_proj|in_proj|out_proj)\.weight$/;
  const matrices = [...tensors.values()].filter((each) => each.shape.length === 2 && projections.test(each.name));
  const path = await writeRandomAdapter(join(folder, "adapter"), matrices, { rank: 4, seed });
  const loraModules = [{ name: "own", path }];
  return { ...hubEngineConfig(model, cacheFolder), maxModelLen: 384, maxNumWaiting: 3 * NUM_REQUESTS, loraModules };
}

async function startEngine(options: EngineOptions): Promise<{ readonly engine: Engine } & AsyncDisposable> {
  const engine = createEngine(options);
  await engine.ready;
  return { engine, [Symbol.asyncDispose]: () => engine.close() };
}

/** Few enough blocks that requests are preempted. */
const paged = { kvLayout: "paged", blockSize: 16, numBlocks: 36 } as const;

test.for<[string, EngineOptions, number]>([
  ["qwen3-vl", {}, 1],
  ["qwen3-vl", paged, 2],
  ["qwen3.5", paged, 3],
  ["gemma3", {}, 4],
  ["gemma4", paged, 5],
  ["lfm2-vl", {}, 6],
  ["qwen3-vl", { dataParallelSize: 2 }, 7],
  ["qwen3.5", { ...paged, dataParallelSize: 2 }, 8],
  // Two copies on two cores, of which the second is loaded meanwhile.
  ["qwen3-vl", { numThreads: 2, maxNumSequences: 16 }, 9],
  ["qwen3.5", { numThreads: 2, maxNumSequences: 16 }, 10],
  ["gemma3", { numThreads: 2, maxNumSequences: 16 }, 11],
])("%s %o, seed %i", async ([name, form, seed]) => {
  await using folder = await createTemporaryFolder();
  const config = await writeModel(name, folder.path, seed);
  await using crowd = await startEngine({ ...config, maxNumSequences: 5, ...form });
  await using single = await startEngine({ ...config, maxNumSequences: 1, enablePrefixCaching: false });
  const requests = randomRequests({
    numRequests: NUM_REQUESTS,
    seed,
    pictures: await Promise.all(["square.png", "strip.png"].map(hubPictureReference)),
    adapters: ["own"],
    defaults: crowd.engine.modelInfo!.defaultSamplingParams,
  });
  const answers = await Promise.all(
    requests.map(({ request, leavesAfter }) => ask(crowd.engine, request, leavesAfter)),
  );
  let numAnswers = 0;
  let numDraws = 0;
  for (const [index, { plain, leavesAfter }] of requests.entries()) {
    if (leavesAfter !== null) continue;
    const { choices, error } = answers[index]!;
    const expected = await ask(single.engine, plain);
    expect([error, choices.length]).toEqual([expected.error, expected.choices.length]);
    for (const [place, choice] of choices.entries()) {
      const other = expected.choices[place]!;
      const isDrawn = differByDraw(choice, other);
      expect(choice).toEqual(rounded(isDrawn ? choice : other));
      numDraws += Number(isDrawn);
    }
    numAnswers += Number(error === null);
  }
  expect(numAnswers).toBeGreaterThan(NUM_REQUESTS / 2);
  expect(numDraws).toBeLessThanOrEqual(1);
  expect(crowd.engine.stats?.numPrefixCacheHits).toBeGreaterThan(0);
});
