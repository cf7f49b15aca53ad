import { expect, test } from "vitest";

import { loadDecoder } from "../../../engine/core/load-graphs.ts";
import { noEmbeddings } from "../../../engine/decoder/decoder.ts";
import type { TokenSpan } from "../../../engine/decoder/decoder.ts";
import { PagedDecoder } from "../../../engine/decoder/paged-decoder.ts";
import { Sequence } from "../../../engine/scheduler/sequence.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "../core/golden-engine.ts";

test("a warm-up of all padded shapes runs on the scratch block alone", async () => {
  await using cache = await createTemporaryFolder();
  const { model } = await buildGoldenModel("llama", cache.path, "float32", { kind: "paged", blockSize: 16 });
  const { decoder, kvManager } = loadDecoder(createWorkerOptions(model));
  using owned = decoder;
  expect(owned).toBeInstanceOf(PagedDecoder);
  (decoder as PagedDecoder).warmUp();
  expect(kvManager.usage).toBe(0);
});

test.for([true, false])("eager steps (%s) give the reference's tokens, alone and with others", async (enforceEager) => {
  await using cache = await createTemporaryFolder();
  const { model, cases } = await buildGoldenModel("llava-default", cache.path, "float32", {
    kind: "paged",
    blockSize: 16,
  });
  using engine = await SteppedEngine.create(createWorkerOptions(model, { enforceEager, maxNumSequences: 5 }));
  for (let index = 0; index < 7; index++) {
    engine.add(goldenRequest(`${index}`, cases[index % cases.length]!, model));
    engine.step();
  }
  engine.runToEnd();
  for (let index = 0; index < 7; index++) {
    expect(engine.tokensOf(`${index}`)).toEqual(cases[index % cases.length]!.greedyTokenIds);
  }
});

test("a run that fails in the middle leaves recurrent states as they were, so that it can be repeated", async () => {
  await using cache = await createTemporaryFolder();
  const { model, cases } = await buildGoldenModel("qwen3.5", cache.path, "float32", { kind: "paged", blockSize: 16 });
  const { decoder, kvManager } = loadDecoder(createWorkerOptions(model));
  using owned = decoder;
  const [first, second] = cases.slice(0, 2).map((golden) => {
    const sequence = new Sequence(goldenRequest(golden.name, golden, model));
    kvManager.tryPlace(sequence)!.take();
    kvManager.reserve(sequence, sequence.numPromptTokens);
    return sequence;
  }) as [Sequence, Sequence];
  const span = (sequence: Sequence, firstToken: number, endToken: number, numLogits: number): TokenSpan => ({
    sequence,
    firstToken,
    endToken,
    numLogits,
    embeddings: noEmbeddings,
  });
  const compute = (...spans: readonly TokenSpan[]): Float32Array => {
    const numRows = spans.reduce((sum, { numLogits }) => sum + numLogits, 0);
    const rows = new Float32Array(numRows * model.decoder.vocabSize);
    owned.compute(spans, { rows, step: null });
    return rows;
  };
  const { numPromptTokens } = first;
  compute(span(first, 0, numPromptTokens - 3, 0));
  // More predictions than there are tokens: the run fails after the last layer has mixed its tokens.
  expect(() => compute(span(first, numPromptTokens - 3, numPromptTokens, 1), span(second, 0, 9, 31))).toThrow(
    "out of data bounds",
  );
  const logits = compute(span(first, numPromptTokens - 3, numPromptTokens, 1));
  const expected = cases[0]!.logits.subarray(0, model.decoder.vocabSize);
  expect(Math.max(...logits.map((logit, token) => Math.abs(logit - expected[token]!)))).toBeLessThan(1e-3);
});
