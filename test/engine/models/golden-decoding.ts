/** Runs a built model through a golden conversation with given tokens, and collects the logits. */
import type { BuiltModel } from "../../../engine/models/built-model.ts";
import type { GoldenCase } from "../../support/checkpoints/goldens.ts";
import type { DirectDecoder, DirectRun, ImageRows } from "./direct-decoder.ts";

/** Prefills slot 0 in chunks. The images' embeddings are the recorded ones by default. */
export function prefill(
  decoder: DirectDecoder,
  model: BuiltModel,
  golden: GoldenCase,
  chunkSize: number,
  imageFeatures: Float32Array | null = golden.imageFeatures,
): Float32Array {
  const { promptTokenIds } = golden;
  let logits: Float32Array = new Float32Array(0);
  for (let start = 0; start < promptTokenIds.length; start += chunkSize) {
    const chunk = promptTokenIds.slice(start, start + chunkSize);
    const isLast = start + chunk.length === promptTokenIds.length;
    logits = decoder.run({
      tokenIds: [chunk],
      numComputed: [start],
      images: imageRowsOf(model, promptTokenIds, imageFeatures, start, start + chunk.length),
      ...positionsOf(golden, start, start + chunk.length),
      logitRows: isLast ? [chunk.length - 1] : [],
    });
  }
  return logits;
}

/** Row-major [32, vocabSize]: the logits from which each greedy token is chosen. */
export function decodeGolden(
  decoder: DirectDecoder,
  model: BuiltModel,
  golden: GoldenCase,
  chunkSize: number,
  imageFeatures: Float32Array | null = golden.imageFeatures,
): Float32Array {
  const { promptTokenIds, greedyTokenIds } = golden;
  const { vocabSize } = model.decoder;
  const logits = new Float32Array(greedyTokenIds.length * vocabSize);
  logits.set(prefill(decoder, model, golden, chunkSize, imageFeatures));
  for (let step = 1; step < greedyTokenIds.length; step++) {
    const tokenIds = [[greedyTokenIds[step - 1]!]];
    const numComputed = [promptTokenIds.length + step - 1];
    const positions = positionsOf(golden, numComputed[0]!, numComputed[0]! + 1);
    logits.set(decoder.run({ tokenIds, numComputed, ...positions, logitRows: [0] }), step * vocabSize);
  }
  return logits;
}

function positionsOf({ positions }: GoldenCase, start: number, end: number): Pick<DirectRun, "positions"> {
  return positions === undefined ? {} : { positions: positions.map((axis) => axis.slice(start, end)) };
}

function imageRowsOf(
  model: BuiltModel,
  promptTokenIds: readonly number[],
  imageFeatures: Float32Array | null,
  start: number,
  end: number,
): ImageRows {
  const rows = promptTokenIds.flatMap((id, position) => (id === model.imageTokenId ? [position] : []));
  const positions = rows.filter((row) => row >= start && row < end);
  const first = rows.filter((row) => row < start).length;
  const { hiddenSize } = model.decoder;
  const embeddings = imageFeatures?.slice(first * hiddenSize, (first + positions.length) * hiddenSize);
  return { embeddings: embeddings ?? new Float32Array(0), positions: positions.map((row) => row - start) };
}

/** Largest difference as a fraction of the range of `expected`; infinite for another length. */
export function relativeError(actual: Float32Array, expected: Float32Array): number {
  if (actual.length !== expected.length) return Infinity;
  let difference = 0;
  let [low, high] = [Infinity, -Infinity];
  for (let index = 0; index < expected.length; index++) {
    difference = Math.max(difference, Math.abs(actual[index]! - expected[index]!));
    low = Math.min(low, expected[index]!);
    high = Math.max(high, expected[index]!);
  }
  return difference / (high - low);
}

/** Index of the largest element of each row. */
export function argmaxRows(values: Float32Array, rowSize: number): number[] {
  return Array.from({ length: values.length / rowSize }, (_, row) => {
    const slice = values.subarray(row * rowSize, (row + 1) * rowSize);
    return slice.indexOf(slice.reduce((largest, value) => Math.max(largest, value), -Infinity));
  });
}

/** Mean over the rows of the Kullback-Leibler divergence of `actual`'s distribution from `expected`'s, in nats. */
export function meanDivergence(expected: Float32Array, actual: Float32Array, rowSize: number): number {
  const numRows = expected.length / rowSize;
  let divergence = 0;
  for (let row = 0; row < numRows; row++) {
    const reference = logSoftmax(expected.subarray(row * rowSize, (row + 1) * rowSize));
    const approximation = logSoftmax(actual.subarray(row * rowSize, (row + 1) * rowSize));
    reference.forEach((logprob, index) => {
      divergence += Math.exp(logprob) * (logprob - approximation[index]!);
    });
  }
  return divergence / numRows;
}

function logSoftmax(logits: Float32Array): Float64Array {
  const largest = logits.reduce((left, right) => Math.max(left, right), -Infinity);
  const sum = logits.reduce((total, logit) => total + Math.exp(logit - largest), 0);
  return Float64Array.from(logits, (logit) => logit - largest - Math.log(sum));
}
