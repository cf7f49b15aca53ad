import { expect, test } from "vitest";

import { createEngineCore } from "../../../engine/core/create-engine-core.ts";
import { loadDecoder } from "../../../engine/core/load-graphs.ts";
import { noEmbeddings } from "../../../engine/decoder/decoder.ts";
import type { SpanEmbeddings, TokenSpan } from "../../../engine/decoder/decoder.ts";
import { PagedDecoder } from "../../../engine/decoder/paged-decoder.ts";
import type { PrefillChunk } from "../../../engine/scheduler/scheduler-output.ts";
import { Sequence } from "../../../engine/scheduler/sequence.ts";
import type { EncoderOutput, ToEngineThread } from "../../../engine/thread/messages.ts";
import type { FeaturePool } from "../../../engine/vision/feature-pool.ts";
import { loadGoldens } from "../../support/checkpoints/goldens.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "../core/golden-engine.ts";
import { buildFrom } from "../models/direct-build.ts";

test("a warm-up of all padded shapes runs on the scratch block alone", async () => {
  await using cache = await createTemporaryFolder();
  const { model } = await buildGoldenModel("llama", cache.path, "float32", { kind: "paged", blockSize: 16 });
  const { decoder, kvManager } = loadDecoder(createWorkerOptions(model));
  using owned = decoder;
  expect(owned).toBeInstanceOf(PagedDecoder);
  (decoder as PagedDecoder).warmUp();
  expect(kvManager.usage).toBe(0);
});

test("a warm-up leaves the state alone from which recurrent layers begin", async () => {
  await using cache = await createTemporaryFolder();
  const { model, cases } = await buildGoldenModel("qwen3.5", cache.path, "float32", { kind: "paged", blockSize: 16 });
  const { decoder, kvManager } = loadDecoder(createWorkerOptions(model));
  using owned = decoder;
  const [golden] = cases as readonly [(typeof cases)[number]];
  const sequence = new Sequence(goldenRequest("0", golden, model));
  const { numPromptTokens } = sequence;
  kvManager.tryPlace(sequence)!.take();
  kvManager.reserve(sequence, numPromptTokens);
  const span = { sequence, firstToken: 0, endToken: numPromptTokens, numLogits: 1, embeddings: noEmbeddings };
  const compute = (): Float32Array => {
    const rows = new Float32Array(model.decoder.vocabSize);
    owned.compute([span], { rows, step: null });
    return rows;
  };
  const before = compute();
  (decoder as PagedDecoder).warmUp();
  // The pair of rows has the state of the first time.
  expect(compute()).toEqual(before);
  expect(Math.max(...before.map((logit, token) => Math.abs(logit - golden.logits[token]!)))).toBeLessThan(1e-3);
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
  await engine.runToEnd();
  for (let index = 0; index < 7; index++) {
    expect(engine.tokensOf(`${index}`)).toEqual(cases[index % cases.length]!.greedyTokenIds);
  }
});

const fp8 = { kvLayout: { kind: "paged", blockSize: 16 }, kvPrecision: { kind: "fp8" } } as const;

test("with 8-bit floats, a run with prompts copies as much as the longest sequence has at most", async () => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder, cases } = await loadGoldens("llama");
  const options = createWorkerOptions(await buildFrom(checkpointFolder, { cacheFolder: cache.path, ...fp8 }));
  using decoder = loadDecoder({ ...options, maxModelLen: 400 }).decoder;
  const chunkTo = (end: number): PrefillChunk => ({
    sequence: new Sequence({ ...goldenRequest(`${end}`, cases[0]!, options.model), images: [] }),
    firstToken: end - 2,
    numTokens: 2,
    imagesToEncode: [],
  });
  const decodesTo = (...ends: readonly number[]): Sequence[] =>
    ends.map((end) => Object.assign(chunkTo(end).sequence, { numComputedTokens: end - 1 }));
  const endsOf = (ends: readonly number[]): number[][] =>
    decoder
      .planRuns([], ends.map(chunkTo))
      .map(({ chunks }) => chunks.map(({ firstToken, numTokens }) => firstToken + numTokens));
  expect(decoder.planRuns([], [])).toEqual([]);
  const many = decodesTo(100, 100, 100, 101);
  expect(decoder.planRuns(many, [])).toEqual([{ decodes: many, chunks: [] }]);
  const chunk = chunkTo(9);
  const apart = [
    { decodes: many, chunks: [] },
    { decodes: [], chunks: [chunk] },
  ];
  expect(decoder.planRuns(many, [chunk])).toEqual(apart);
  const few = decodesTo(80, 80, 80, 80);
  expect(decoder.planRuns(few, [chunk])).toEqual([{ decodes: few, chunks: [chunk] }]);
  expect(decoder.planRuns(few, [chunk, chunk])).toEqual([
    { decodes: few, chunks: [chunk] },
    { decodes: [], chunks: [chunk] },
  ]);
  expect(endsOf([100, 100, 100, 100, 100])).toEqual([[100, 100, 100, 100], [100]]);
  expect(endsOf([10, 400, 10, 10])).toEqual([[10], [400], [10, 10]]);
  expect(endsOf([400, 400])).toEqual([[400], [400]]);
  expect(endsOf([100, 150, 150])).toEqual([[100, 150], [150]]);
});

test.for([true, false])("eager steps (%s) over 8-bit floats give each sequence what it has alone", async (isEager) => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder, cases } = await loadGoldens("llava-default");
  const model = await buildFrom(checkpointFolder, { cacheFolder: cache.path, ...fp8 });
  const settings = { enforceEager: isEager, maxNumSequences: 5, maxNumBatchedTokens: 64 };
  const answers = async (numTogether: number): Promise<(readonly number[])[]> => {
    using engine = await SteppedEngine.create(createWorkerOptions(model, settings));
    for (let index = 0; index < 6; index++) {
      engine.add(goldenRequest(`${index}`, cases[index % cases.length]!, model));
      if ((index + 1) % numTogether === 0) await engine.runToEnd();
      else engine.step();
    }
    return Array.from({ length: 6 }, (_, index) => engine.tokensOf(`${index}`));
  };
  expect(await answers(6)).toEqual(await answers(1));
});

test.for(["llama", "qwen3"] as const)("%s: a step may have more tokens than a sequence", async (name) => {
  await using cache = await createTemporaryFolder();
  const { model, cases } = await buildGoldenModel(name, cache.path, "float32", { kind: "paged", blockSize: 16 });
  const options = createWorkerOptions(model, { maxNumBatchedTokens: 600, enablePrefixCaching: false });
  const { decoder, kvManager } = loadDecoder(options);
  using owned = decoder;
  const promptTokenIds = Array.from({ length: 200 }, (_, index) => 3 + ((index * 7) % 90));
  const spans = [0, 1, 2].map((index): TokenSpan => {
    const request = { ...goldenRequest(`${index}`, cases[0]!, model), promptTokenIds, images: [] };
    const sequence = new Sequence(request);
    kvManager.tryPlace(sequence)!.take();
    kvManager.reserve(sequence, 200);
    return { sequence, firstToken: 0, endToken: 200, numLogits: 1, embeddings: noEmbeddings };
  });
  const compute = (...computed: readonly TokenSpan[]): Float32Array => {
    const rows = new Float32Array(computed.length * model.decoder.vocabSize);
    owned.compute(computed, { rows, step: null });
    return rows;
  };
  const [alone] = spans.map((span) => compute(span));
  expect(options.maxModelLen).toBeLessThan(600);
  const together = compute(...spans);
  const differences = together.map((logit, index) => Math.abs(logit - alone![index % alone!.length]!));
  expect(Math.max(...differences)).toBeLessThan(1e-4);
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

test("image features give the same predictions from the pool and from the host", async () => {
  await using cache = await createTemporaryFolder();
  const kvLayout = { kind: "paged", blockSize: 16 } as const;
  const { model, cases } = await buildGoldenModel("llava-default", cache.path, "float32", kvLayout);
  const { imageWidth, vocabSize } = model.decoder;
  const golden = cases.find(({ imageFeatures }) => imageFeatures !== null)!;
  const sequence = new Sequence(goldenRequest(golden.name, golden, model));
  const numTokens = sequence.numPromptTokens;
  const features = golden.imageFeatures!;
  const positions = BigInt64Array.from(
    golden.promptTokenIds.flatMap((tokenId, index) => (tokenId === model.imageTokenId ? [BigInt(index)] : [])),
  );
  const numRows = positions.length;
  expect(features.length).toBe(numRows * imageWidth);
  const predict = (embeddings: (pool: FeaturePool) => SpanEmbeddings): Float32Array => {
    const { decoder, kvManager } = loadDecoder(createWorkerOptions(model));
    using owned = decoder;
    kvManager.tryPlace(sequence)!.take();
    kvManager.reserve(sequence, numTokens);
    const rows = new Float32Array(vocabSize);
    const span = {
      sequence,
      firstToken: 0,
      endToken: numTokens,
      numLogits: 1,
      embeddings: embeddings(owned.featurePool!),
    };
    owned.compute([span], { rows, step: null });
    kvManager.release(sequence, false);
    return rows;
  };
  /** Puts the first rows into the pool, behind other rows; the rest comes from the host. */
  const pooled =
    (numPooled: number) =>
    (pool: FeaturePool): SpanEmbeddings => {
      pool.take(5);
      const rows = pool.take(numPooled)!;
      pool.write(rows, (target) => target.copyFrom(features.slice(0, numPooled * imageWidth)));
      const poolRows = positions.map((_, index) => (index < numPooled ? BigInt(rows.firstRow + index) : -1n));
      return { embeddings: features.slice(numPooled * imageWidth), positions, poolRows };
    };
  const expected = predict(() => ({ embeddings: features, positions }));
  expect(expected.every((logit, token) => Math.abs(logit - golden.logits[token]!) < 1e-3)).toBe(true);
  expect(predict(pooled(numRows))).toEqual(expected);
  expect(predict(pooled(numRows - 3))).toEqual(expected);
  expect(predict(() => ({ embeddings: features.map((value) => -value), positions }))).not.toEqual(expected);
});

test.for([
  [false, "are read from the pool after a step that encodes"],
  [true, "are those of an image that was encoded beside the steps"],
] as const)("embeddings for caches $1", async ([encodesInBackground]) => {
  await using cache = await createTemporaryFolder();
  const kvLayout = { kind: "paged", blockSize: 16 } as const;
  const { model, cases } = await buildGoldenModel("llava-default", cache.path, "float32", kvLayout);
  const golden = cases.find(({ imageFeatures }) => imageFeatures !== null)!;
  const messages: ToEngineThread[] = [{ kind: "add", request: goldenRequest("0", golden, model) }];
  const options = { ...createWorkerOptions(model), encodesInBackground };
  using core = await createEngineCore(options, () => messages.splice(0));
  core.drainMessages();
  core.step();
  core.copyEncoderOutputs();
  expect(core.isEncoding).toBe(encodesInBackground);
  expect(core.isCopying).toBe(!encodesInBackground);
  const outputs: EncoderOutput[] = [];
  while (outputs.length < golden.pictures.length) {
    // Nothing waits for a copy.
    if (core.hasWork) core.step();
    core.copyEncoderOutputs();
    if (core.isWaiting) await core.encodingEnded;
    else await new Promise((resolve) => setImmediate(resolve));
    outputs.push(...core.takeEncoderOutputs());
  }
  const [output] = outputs;
  const expected = golden.imageFeatures!.subarray(0, output!.embeddings.data.length);
  expect(outputs).toHaveLength(golden.imageFeatures!.length / expected.length);
  expect(output!.embeddings.data.every((value, index) => Math.abs(value - expected[index]!) < 1e-3)).toBe(true);
  core.step();
  core.copyEncoderOutputs();
  expect(core.takeEncoderOutputs()).toEqual([]);
});
