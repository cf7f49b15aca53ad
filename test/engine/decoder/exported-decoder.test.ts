/** Sequences of an export that decode in one run, each padded to the longest. */
import { expect, test } from "vitest";

import type { EngineConfig } from "../../../engine/contract/config.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { loadDecoder } from "../../../engine/core/load-graphs.ts";
import { noEmbeddings } from "../../../engine/decoder/decoder.ts";
import type { TokenSpan } from "../../../engine/decoder/decoder.ts";
import type { BuiltModel } from "../../../engine/models/built-model.ts";
import { Sequence } from "../../../engine/scheduler/sequence.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "../core/golden-engine.ts";

/** Large enough that pasts are always run together. */
const heavy = 2 ** 40;
const lengths = [3, 60, 1, 17, 33, 34, 8, 2];
const numOutputTokens = 24;

test.for([
  { name: "onnx-exports/llava", padding: "front" },
  { name: "onnx-exports/qwen2-vl", padding: "front" },
  { name: "onnx-exports/smolvlm", padding: "back" },
] as const)(
  "$name: eight sequences of all lengths, padded in $padding, get the same tokens as alone",
  async ({ name }) => {
    await using cache = await createTemporaryFolder();
    const { model, cases } = await buildGoldenModel(name, cache.path);
    const requests = lengths.map((length, index): EngineRequest => {
      const params = { maxTokens: numOutputTokens, logprobs: 1 };
      const request = goldenRequest(`${index}`, { ...cases[0]!, pictures: [] }, model, params);
      const promptTokenIds = Array.from({ length }, (_, place) => 5 + ((place * 31 + index * 17) % 300));
      return { ...request, promptTokenIds };
    });
    const alone = await generate(model, requests, { maxNumSequences: 1 });
    const together = await generate(withWeightBytes(model, heavy), requests);
    expect(together.tokenIds).toEqual(alone.tokenIds);
    expect(together.logprobs).toHaveLength(lengths.length * numOutputTokens);
    together.logprobs.forEach((logprob, index) => expect(logprob).toBeCloseTo(alone.logprobs[index]!, 4));
  },
);

test("sequences whose neighbour's run failed get the same logits again", async () => {
  await using cache = await createTemporaryFolder();
  const { model, cases } = await buildGoldenModel("onnx-exports/smolvlm", cache.path);
  const { vocabSize } = model.decoder;
  // Each sequence decodes in a run of its own.
  const { decoder, kvManager } = loadDecoder(createWorkerOptions(withWeightBytes(model, 1)));
  using owned = decoder;
  const compute = (...spans: readonly TokenSpan[]): Float32Array => {
    const rows = new Float32Array(spans.length * vocabSize);
    owned.compute(spans, { rows, step: null });
    return rows;
  };
  const spanOf = (sequence: Sequence, firstToken: number, endToken: number): TokenSpan => ({
    sequence,
    firstToken,
    endToken,
    numLogits: 1,
    embeddings: noEmbeddings,
  });
  const [reference, whole, broken] = [7, 7, vocabSize + 1].map((newestToken) => {
    const request = goldenRequest(`${newestToken}`, { ...cases[0]!, pictures: [] }, model);
    const sequence = new Sequence({ ...request, promptTokenIds: [5, 6, 7, 8] });
    kvManager.tryPlace(sequence)!.take();
    kvManager.reserve(sequence, sequence.numPromptTokens + 1);
    compute(spanOf(sequence, 0, 4));
    sequence.numComputedTokens = 4;
    sequence.outputTokenIds.push(newestToken);
    return spanOf(sequence, 4, 5);
  });
  const expected = compute(reference!);
  expect(() => compute(whole!, broken!)).toThrow("out of data bounds");
  expect(compute(whole!)).toEqual(expected);
});

function withWeightBytes(model: BuiltModel, weightBytes: number): BuiltModel {
  const { decoder } = model;
  if (decoder.form !== "export") throw new Error("The model is no export.");
  return { ...model, decoder: { ...decoder, weightBytes } };
}

async function generate(
  model: BuiltModel,
  requests: readonly EngineRequest[],
  overrides: Partial<EngineConfig> = {},
): Promise<{ tokenIds: readonly (readonly number[])[]; logprobs: readonly number[] }> {
  using engine = await SteppedEngine.create(createWorkerOptions(model, { enablePrefixCaching: false, ...overrides }));
  for (const request of requests) engine.add(request);
  await engine.runToEnd();
  return {
    tokenIds: requests.map(({ requestId }) => engine.tokensOf(requestId)),
    logprobs: requests.flatMap(({ requestId }) =>
      engine.generations.get(requestId)!.outputs.map(({ logprobs }) => logprobs![0]!.sampled.logprob),
    ),
  };
}
