import { expect, test } from "vitest";

import { decoderSessionOptions } from "../../../engine/core/session-options.ts";
import type { SpanEmbeddings } from "../../../engine/decoder/decoder.ts";
import { InPlaceDecoder } from "../../../engine/decoder/in-place-decoder.ts";
import { KvSlots } from "../../../engine/kv/kv-slots.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Sequence } from "../../../engine/scheduler/sequence.ts";
import { GraphPool } from "../../../engine/vision/graph-pool.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest } from "../core/golden-engine.ts";

test("features from a pool, from the host and from both give the same predictions", async () => {
  await using cache = await createTemporaryFolder();
  const { model, cases } = await buildGoldenModel("llava-default", cache.path);
  const { decoder: graph } = model;
  if (graph.form !== "in-place") throw new Error("the checkpoint has graphs of ours");
  const { imageWidth: width, vocabSize } = graph;
  const golden = cases.find(({ imageFeatures }) => imageFeatures !== null)!;
  const features = golden.imageFeatures!;
  const positions = BigInt64Array.from(
    golden.promptTokenIds.flatMap((tokenId, index) => (tokenId === model.imageTokenId ? [BigInt(index)] : [])),
  );
  const numTokens = golden.promptTokenIds.length;
  const { config } = createWorkerOptions(model);
  const predict = (embeddings: (pool: GraphPool) => SpanEmbeddings): Float32Array => {
    const pool = new GraphPool("cpu", config, { width, numRows: 2 * positions.length, maxRunRows: numTokens });
    const kvSlots = new KvSlots(1, numTokens + 1);
    kvSlots.take(0, 0);
    const session = Session.load(graph.path, decoderSessionOptions(config, model));
    using decoder = new InPlaceDecoder(graph, session, kvSlots, null, null, pool);
    const sequence = new Sequence(goldenRequest(golden.name, golden, model));
    sequence.kvSlot = 0;
    const rows = new Float32Array(vocabSize);
    const span = { sequence, firstToken: 0, endToken: numTokens, numLogits: 1, embeddings: embeddings(pool) };
    decoder.compute([span], { rows, step: null });
    return rows;
  };
  /** Every `stride`th row is on the host. */
  const mixed =
    (stride: number) =>
    (pool: GraphPool): SpanEmbeddings => {
      pool.take(3);
      const pooled = pool.take(positions.length)!;
      pool.write(pooled, (target) => target.copyFrom(features));
      return {
        embeddings: features.filter((_, number) => Math.floor(number / width) % stride === 0),
        positions,
        poolRows: positions.map((_, index) => (index % stride === 0 ? -1n : BigInt(pooled.firstRow + index))),
      };
    };
  const expected = predict(() => ({ embeddings: features, positions, poolRows: positions.map(() => -1n) }));
  expect(expected.every((logit, token) => Math.abs(logit - golden.logits[token]!) < 1e-3)).toBe(true);
  expect(predict(mixed(1))).toEqual(expected);
  expect(predict(mixed(2))).toEqual(expected);
  expect(predict(mixed(positions.length + 1))).toEqual(expected);
});
