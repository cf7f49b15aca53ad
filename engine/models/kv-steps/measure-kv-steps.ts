/**
 * Measures the steps of 8-bit keys and values: the largest magnitudes that a text leaves in a cache of floats. Runs in a
 * thread of its own, because it computes a prompt.
 */
import { Session } from "../../runtime/session.ts";
import { Tensor } from "../../runtime/tensor.ts";
import type { DecoderGraph } from "../built-model.ts";
import { layersOf, outputWidthOf, presentNames } from "../decoder-shape.ts";
import { stateShapes } from "../state-shapes.ts";

export interface KvMeasurement {
  /** With slots of float32. */
  readonly decoder: DecoderGraph;
  readonly externalDataFolder: string | undefined;
  readonly numThreads: number;
  readonly tokenIds: readonly number[];
}

/** Largest magnitude that a code stands for, in steps. */
const LARGEST_CODE = 127;

/**
 * Other texts and pictures have larger magnitudes than the measured one. Clipping costs more than coarse steps: over the
 * random checkpoints of the tests, the worst divergence from float32 is 0.28 with a factor of 1.2, 0.02 with 2 and 0.07
 * with 4.
 */
const HEADROOM = 2;

/** A channel that is always zero has any step but zero. */
const SMALLEST_STEP = 1e-8;

/**
 * For each layer [numKvHeads * headDim] for its keys, then for its values.
 *
 * @throws EngineError `runtime_failed`.
 */
export function measureKvSteps({ decoder, externalDataFolder, numThreads, tokenIds }: KvMeasurement): Float32Array {
  const numTokens = tokenIds.length;
  using session = Session.load(decoder.path, { device: "cpu", deviceId: 0, numThreads, externalDataFolder });
  using owned = new DisposableStack();
  using binding = session.createBinding();
  const caches = layersOf(decoder).flatMap(({ numKvHeads, headDim }, layer) =>
    (["key", "value"] as const).map((part) => {
      const cache = owned.use(session.allocateTensor("float32", [1, numKvHeads, numTokens, headDim]));
      binding.bindInput(`past.${layer}.${part}`, cache);
      for (const name of presentNames(decoder, layer, part)) binding.bindOutput(name, cache);
      return { data: cache.data, headDim, width: numKvHeads * headDim };
    }),
  );
  // Zeros before the first token.
  for (const { name, shape } of decoder.recurrent === undefined ? [] : stateShapes(decoder.recurrent)) {
    const state = owned.use(session.allocateTensor("float32", [1, ...shape]));
    binding.bindInput(`past.${name}`, state);
    binding.bindOutput(`present.${name}`, state);
  }
  for (const [name, tensor] of Object.entries(inputsOf(decoder, tokenIds))) {
    binding.bindInput(name, owned.use(tensor));
  }
  const width = outputWidthOf(decoder);
  const logits = Tensor.fromTypedArray("float32", new Float32Array(width), [1, width]);
  binding.bindOutput("logits", owned.use(logits));
  binding.run();
  const steps = new Float32Array(caches.reduce((sum, { width }) => sum + width, 0));
  let start = 0;
  for (const { data: rows, headDim, width } of caches) {
    for (let place = 0; place < rows.length; place++) {
      const head = Math.floor(place / (numTokens * headDim));
      const channel = start + head * headDim + (place % headDim);
      const step = Math.max((Math.abs(rows[place]!) * HEADROOM) / LARGEST_CODE, SMALLEST_STEP);
      if (step > steps[channel]!) steps[channel] = step;
    }
    start += width;
  }
  return steps;
}

function inputsOf(decoder: DecoderGraph, tokenIds: readonly number[]): Record<string, Tensor> {
  const numTokens = tokenIds.length;
  const int64 = (values: readonly number[], shape: readonly number[]): Tensor =>
    Tensor.fromTypedArray("int64", BigInt64Array.from(values, BigInt), shape);
  const places = [...tokenIds.keys()];
  return {
    input_ids: int64(tokenIds, [1, numTokens]),
    seqlens_k: Tensor.fromTypedArray("int32", Int32Array.of(numTokens - 1), [1]),
    total_sequence_length: Tensor.fromTypedArray("int32", Int32Array.of(numTokens), []),
    logit_rows: int64([numTokens - 1], [1]),
    ...(decoder.acceptsImages && {
      image_embeds: Tensor.fromTypedArray("float32", new Float32Array(0), [0, decoder.imageWidth]),
      image_positions: int64([], [0, 1]),
    }),
    ...(decoder.recurrent && { updates_state: Tensor.fromTypedArray("bool", Uint8Array.of(1), [1]) }),
    ...(decoder.takesPositions && { positions: int64([...places, ...places, ...places], [3, numTokens]) }),
  };
}
