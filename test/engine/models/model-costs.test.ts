import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createKvCache } from "../../../engine/kv/create-kv-cache.ts";
import { planKvCache } from "../../../engine/kv/memory-plan.ts";
import { modelCosts, runCosts } from "../../../engine/models/model-costs.ts";
import { imaginedWeights, WeightCollector } from "../../../engine/models/weight-source.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { prepareWeights } from "../../../engine/weights/prepare-weights.ts";
import { goldensFolder, loadGoldens } from "../../support/checkpoints/goldens.ts";
import { buildModel, configureGraphs } from "../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

test.for([
  ["llava-default", "float32"],
  ["llava-default", "int8"],
  ["llava-default", "int4"],
  ["fovea-shapes", "int4"],
  ["qwen2", "float32"],
] as const)("weights of %s in %s take the memory planned from their headers", async ([name, dtype]) => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens(name);
  const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder: cache.path });
  const graphs = configureGraphs(checkpoint.config, { dtype, device: "cpu", maxModelLen: null });
  const { weights } = modelCosts(checkpoint, graphs);

  const collector = new WeightCollector(checkpoint.tensors);
  graphs.buildDecoder(collector);
  graphs.buildVisionEncoder(collector);
  const prepared = await prepareWeights(checkpoint, [...collector.requests.values()], {
    cacheFolder: cache.path,
    numThreads: 1,
  });
  // By place: a table that is tied to the head is one.
  const byPlace = new Map<string, number>();
  const tensors = [...prepared.values()].flatMap(({ weight, scales }) =>
    scales === null ? [weight] : [weight, scales],
  );
  for (const { file, byteOffset, byteLength } of [...tensors, ...collector.storedTensors]) {
    byPlace.set(`${file} ${byteOffset}`, byteLength);
  }
  const total = [...byPlace.values()].reduce((sum, bytes) => sum + bytes, 0);
  expect(weights.embedding + weights.decoder + weights.visionEncoder).toBe(total);
});

test("an engine's KV cache has the planned size", async () => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("llava-default");
  const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder: cache.path });
  const options = {
    dtype: "float32",
    device: "cpu",
    maxModelLen: 128,
    cacheFolder: cache.path,
    numThreads: 1,
  } as const;
  const { decoder, externalDataFolder } = await buildModel(checkpoint, options);
  using session = Session.load(decoder.path, { device: "cpu", deviceId: 0, numThreads: 1, externalDataFolder });
  const shape = { numSlots: 3, maxLen: 128 };
  using kvCache = createKvCache(session, decoder, shape);
  expect(kvCache.byteLength).toBe(planKvCache(decoder, shape).reservedBytes);
});

test("a step's memory grows with its tokens and with the cache they attend to", async () => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("llama");
  const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder: cache.path });
  const planAt = (maxModelLen: number) =>
    modelCosts(checkpoint, configureGraphs(checkpoint.config, { dtype: "float32", device: "cpu", maxModelLen }));
  const bytesOf = (numTokens: number, maxModelLen: number) =>
    planAt(maxModelLen).decoderRunBytes({ numSequences: 1, numTokens });
  expect(bytesOf(128, 512)).toBeGreaterThan(bytesOf(64, 512) * 1.9);
  const { num_attention_heads: numHeads } = checkpoint.config as { num_attention_heads: number };
  // One float per head for every pair of token and position.
  expect(bytesOf(128, 512) - bytesOf(128, 256)).toBe(128 * 256 * numHeads * 4);
  expect(planAt(512).visionRunBytes(16)).toBe(0);
});

test("a packed run's room grows with its tokens and, for the reference, with what all sequences have cached", async () => {
  const config = JSON.parse(await readFile(join(goldensFolder, "llama", "config.json"), "utf8")) as unknown;
  const costsOf = (device: "cpu" | "cuda") => {
    const dtype = device === "cpu" ? "float32" : "float16";
    const options = { dtype, device, maxModelLen: 256, kvLayout: { kind: "paged", blockSize: 16 } } as const;
    const graphs = configureGraphs(config, options);
    return runCosts(graphs, graphs.buildDecoder(imaginedWeights), null);
  };
  const cuda = costsOf("cuda");
  const most = cuda.decoderRunBytes({ numSequences: 1, numTokens: 256 });
  expect(most).toBeGreaterThan(1.9 * cuda.decoderRunBytes({ numSequences: 1, numTokens: 128 }));
  // numTokens are those of all sequences: more of them only add rows of logits.
  expect(cuda.decoderRunBytes({ numSequences: 8, numTokens: 256 })).toBe(most);
  const reference = costsOf("cpu");
  const single = reference.decoderRunBytes({ numSequences: 1, numTokens: 256 });
  expect(reference.decoderRunBytes({ numSequences: 8, numTokens: 256 })).toBeGreaterThan(4 * single);
});

test.for(["mistral3", "lighton-ocr", "qwen2-vl"])(
  "the encoder's memory of %s counts all patches of an embedding",
  async (name) => {
    const json = await readFile(join(goldensFolder, "../hub", name, "v5/config.json"), "utf8");
    const graphs = configureGraphs(JSON.parse(json), { dtype: "float32", device: "cpu", maxModelLen: null });
    const [decoder, vision] = [graphs.buildDecoder(imaginedWeights), graphs.buildVisionEncoder(imaginedWeights)];
    const { visionRunBytes } = runCosts(graphs, decoder, vision);
    // Query, key and value, those rotated, and the residual stream, of four patches of 32 features for each embedding.
    expect(visionRunBytes(64)).toBeGreaterThan(6 * 4 * 64 * 32 * 4);
  },
);
