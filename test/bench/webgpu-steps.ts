/**
 * A process of its own for `webgpu.ts`: the Vulkan driver is chosen by the environment a process starts with.
 * Usage: node webgpu-steps.ts MODEL CACHE_FOLDER ROUNDS; prints a list of `WebGpuSteps` as JSON.
 */
import { performance } from "node:perf_hooks";

import { DecoderBinding } from "../../engine/decoder/decoder-binding.ts";
import { createKvCache } from "../../engine/kv/create-kv-cache.ts";
import type { KvCache } from "../../engine/kv/kv-cache.ts";
import type { DecoderGraph } from "../../engine/models/built-model.ts";
import { Session } from "../../engine/runtime/session.ts";
import { Tensor } from "../../engine/runtime/tensor.ts";
import { openCheckpoint } from "../../engine/weights/checkpoint.ts";
import { buildModel } from "../support/engine/shipped-models.ts";

/** Of one decode step, in milliseconds, one entry per round. */
export interface WebGpuSteps {
  readonly numSequences: number;
  /** As one run. */
  readonly together: readonly number[];
  /** As a run for each sequence, over tensors of its own. */
  readonly alone: readonly number[];
}

const counts = [1, 8, 32, 64];
const contextTokens = 96;
const maxLen = 128;
const device = { device: "webgpu", deviceId: 0, numThreads: 1 } as const;

const [modelFolder, cacheFolder, roundsText] = process.argv.slice(2) as [string, string, string];
const checkpoint = await openCheckpoint(modelFolder, { cacheFolder });
const { decoder, externalDataFolder } = await buildModel(checkpoint, {
  dtype: "float32",
  device: "webgpu",
  maxModelLen: maxLen,
  cacheFolder,
  numThreads: 1,
});
if (decoder.form !== "in-place") throw new Error(`${modelFolder} is an export, whose decoder computes on the host.`);
using session = Session.load(decoder.path, { ...device, externalDataFolder });

/** One token of each of the first `numSlots` slots. */
function bindStep(graph: DecoderGraph, cache: KvCache, numSlots: number): DecoderBinding {
  const { vocabSize, hiddenSize, acceptsImages, takesPositions } = graph;
  const binding = new DecoderBinding(session, graph, cache.view(0, numSlots));
  const int64 = (values: BigInt64Array, shape: readonly number[]): Tensor =>
    Tensor.fromTypedArray("int64", values, shape);
  binding.setInput("input_ids", int64(new BigInt64Array(numSlots).fill(9n), [numSlots, 1]));
  binding.setInput(
    "seqlens_k",
    Tensor.fromTypedArray("int32", new Int32Array(numSlots).fill(contextTokens), [numSlots]),
  );
  binding.setInput("total_sequence_length", Tensor.fromTypedArray("int32", Int32Array.of(contextTokens + 1), []));
  binding.setInput(
    "logit_rows",
    int64(
      BigInt64Array.from({ length: numSlots }, (_, row) => BigInt(row)),
      [numSlots],
    ),
  );
  if (takesPositions) {
    const positions = new BigInt64Array(3 * numSlots).fill(BigInt(contextTokens));
    binding.setInput("positions", int64(positions, [3, numSlots]));
  }
  if (acceptsImages) {
    binding.setInput("image_embeds", Tensor.fromTypedArray("float32", new Float32Array(0), [0, hiddenSize]));
    binding.setInput("image_positions", int64(new BigInt64Array(0), [0, 1]));
  }
  const logits = new Float32Array(numSlots * vocabSize);
  binding.setOutput("logits", Tensor.fromTypedArray("float32", logits, [numSlots, vocabSize]));
  return binding;
}

function timeOf(bindings: readonly DecoderBinding[]): number {
  const startMs = performance.now();
  for (const binding of bindings) binding.run();
  return performance.now() - startMs;
}

const steps = counts.map((numSequences): WebGpuSteps => {
  using owned = new DisposableStack();
  const cacheOf = (numSlots: number): KvCache => owned.use(createKvCache(session, decoder, { numSlots, maxLen }));
  const together = [owned.use(bindStep(decoder, cacheOf(numSequences), numSequences))];
  const alone = Array.from({ length: numSequences }, () => owned.use(bindStep(decoder, cacheOf(1), 1)));
  // Kernels are compiled at the first run of a shape.
  timeOf(together);
  timeOf(alone.slice(0, 1));
  const times = Array.from({ length: Number(roundsText) }, () => [timeOf(together), timeOf(alone)] as const);
  return { numSequences, together: times.map(([time]) => time), alone: times.map(([, time]) => time) };
});
process.stdout.write(JSON.stringify(steps));
