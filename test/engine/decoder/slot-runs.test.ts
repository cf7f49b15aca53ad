import { expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { packPrompts } from "../../../engine/decoder/slot-runs.ts";
import type { BuiltModel } from "../../../engine/models/built-model.ts";
import type { KvPrecision } from "../../../engine/models/graph-context.ts";
import type { PrefillChunk } from "../../../engine/scheduler/scheduler-output.ts";
import type { Sequence } from "../../../engine/scheduler/sequence.ts";
import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { hubCheckpoints, writeHubCheckpoint } from "../../support/checkpoints/hub-checkpoints.ts";
import { buildModel } from "../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { createWorkerOptions, SteppedEngine } from "../core/golden-engine.ts";

interface Chunk {
  readonly slot: number;
  readonly numTokens: number;
  readonly firstToken?: number;
  readonly numImages?: number;
}

function chunkOf({ slot, numTokens, firstToken = 0, numImages = 0 }: Chunk): PrefillChunk {
  const images = Array.from({ length: numImages }, () => ({}));
  return { sequence: { kvSlot: slot, images } as unknown as Sequence, firstToken, numTokens, imagesToEncode: [] };
}

const slotsOfPacks = (...chunks: readonly Chunk[]): (number | null)[][] =>
  packPrompts(chunks.map(chunkOf)).map((pack) => pack.map(({ sequence }) => sequence.kvSlot));

test("short prompts in neighbouring slots are one pack, in any order of arrival", () => {
  const prompts = [3, 1, 2].map((slot) => ({ slot, numTokens: 10 + slot }));
  expect(slotsOfPacks(...prompts)).toEqual([[1, 2, 3]]);
});

test("a prompt of which the slot has a few tokens is packed", () => {
  expect(slotsOfPacks({ slot: 0, numTokens: 10 }, { slot: 1, numTokens: 10, firstToken: 5 })).toEqual([[0, 1]]);
});

test.for<{ readonly problem: string; readonly other: Chunk }>([
  { problem: "with a slot between", other: { slot: 2, numTokens: 10 } },
  { problem: "with many tokens before it", other: { slot: 1, numTokens: 10, firstToken: 17 } },
  { problem: "with an image", other: { slot: 1, numTokens: 10, numImages: 1 } },
  { problem: "that needs 17 tokens of padding", other: { slot: 1, numTokens: 27 } },
  { problem: "that makes the pack larger than 256 tokens", other: { slot: 1, numTokens: 250 } },
])("a prompt $problem is not packed with its neighbour", ({ other }) => {
  expect(slotsOfPacks({ slot: 0, numTokens: 10 }, other)).toEqual([[0], [other.slot]]);
});

const lengths = [6, 11, 4, 16, 9, 7, 12, 5];
const kvPrecisions: readonly KvPrecision[] = [{ kind: "activations" }, { kind: "int8", steps: null }];

test.for(hubCheckpoints)("packed prompts of %s get the tokens and logprobs of prompts alone", async (name) => {
  await using folder = await createTemporaryFolder();
  await writeHubCheckpoint(name, "v4", folder.path);
  for (const kvPrecision of kvPrecisions) {
    const model = await buildIfSupported(folder.path, kvPrecision);
    if (model === null) continue;
    const { vocabSize } = model.decoder;
    const earlier = lengths.map((length, index) => requestOf(`earlier ${index}`, 2 * length, vocabSize));
    const requests = lengths.map((length, index) => requestOf(`${index}`, length, vocabSize));
    const alone = await answers(
      model,
      requests.map((request) => ({ ...request, cacheSalt: request.requestId })),
      1,
    );
    // The slots keep the first tokens of their earlier prompts.
    const packed = await answers(model, [...earlier, ...requests], lengths.length);
    for (const { requestId } of requests) {
      const [expected, actual] = [alone.get(requestId)!, packed.get(requestId)!];
      expect(actual.map(({ tokenId }) => tokenId)).toEqual(expected.map(({ tokenId }) => tokenId));
      actual.forEach(({ logprob }, index) => expect(logprob).toBeCloseTo(expected[index]!.logprob, 3));
    }
  }
});

/** Null for a model whose keys and values cannot have the precision. */
async function buildIfSupported(folder: string, kvPrecision: KvPrecision): Promise<BuiltModel | null> {
  const options = { dtype: "float32", device: "cpu", maxModelLen: 512, cacheFolder: folder, numThreads: 1 } as const;
  const sampleTokens = async (): Promise<number[]> => Array.from({ length: 64 }, (_, index) => 3 + index);
  try {
    return await buildModel(await openCheckpoint(folder, options), { ...options, kvPrecision, sampleTokens });
  } catch (error) {
    if (error instanceof EngineError && error.message.includes("int8 KV cache")) return null;
    throw error;
  }
}

/** All prompts begin with the same three tokens. */
function requestOf(requestId: string, numTokens: number, vocabSize: number): EngineRequest {
  const promptTokenIds = Array.from({ length: numTokens }, (_, place) =>
    place < 3 ? 3 + place : 3 + ((numTokens * 31 + place * 17) % (vocabSize - 3)),
  );
  return {
    requestId,
    promptTokenIds,
    images: [],
    samplingParams: createSamplingParams({ temperature: 0, maxTokens: 4, logprobs: 1 }),
    badWordsTokenIds: [],
    cacheSalt: null,
    grammar: null,
    seed: 0,
  };
}

/** @param numAtOnce Requests that arrive together. */
async function answers(
  model: BuiltModel,
  requests: readonly EngineRequest[],
  numAtOnce: number,
): Promise<Map<string, { tokenId: number; logprob: number }[]>> {
  using engine = await SteppedEngine.create(createWorkerOptions(model));
  for (let index = 0; index < requests.length; index += numAtOnce) {
    for (const request of requests.slice(index, index + numAtOnce)) engine.add(request);
    await engine.runToEnd();
  }
  return new Map(
    requests.map(({ requestId }) => {
      const { outputs } = engine.generations.get(requestId)!;
      return [requestId, outputs.flatMap(({ logprobs }) => (logprobs ?? []).map(({ sampled }) => sampled))];
    }),
  );
}
