/** Two ways to compute the same attention: all tokens in one run, or one token per run over a bound KV cache. */
import type { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { attentionSizes } from "./small-models.ts";

const { numHeads, numKvHeads, headDim, maxLength } = attentionSizes;
const defaultNumTokens = 6;
const querySize = numHeads * headDim;
const kvSize = numKvHeads * headDim;
const kvShape = [1, numKvHeads, maxLength, headDim];

export interface AttentionResult {
  /** [numTokens, numHeads * headDim] */
  readonly outputs: Float32Array;
  /** [1, numKvHeads, maxLength, headDim] */
  readonly keys: Float32Array;
}

/** Deterministic numbers in [-1, 1). */
function numbers(size: number, seed: number): Float32Array {
  return Float32Array.from({ length: size }, (_, index) => (((index * 7919 + seed * 104729) % 2048) - 1024) / 1024);
}

export function decodeInOneRun(session: Session, numTokens = defaultNumTokens): AttentionResult {
  return run(session, numTokens, numTokens);
}

export function decode(session: Session): AttentionResult {
  return run(session, defaultNumTokens, 1);
}

/** What all runs compute on. */
export interface AttentionInputs {
  /** [numTokens, numHeads * headDim] */
  readonly queries: Float32Array;
  /** [numTokens, numKvHeads * headDim] */
  readonly keys: Float32Array;
  /** [numTokens, numKvHeads * headDim] */
  readonly values: Float32Array;
}

export function attentionInputs(numTokens: number): AttentionInputs {
  return {
    queries: numbers(numTokens * querySize, 1),
    keys: numbers(numTokens * kvSize, 2),
    values: numbers(numTokens * kvSize, 3),
  };
}

/** The KV cache is allocated where the session computes, bound once as past and as present, and read at the end. */
function run(session: Session, numTokens: number, tokensPerRun: number): AttentionResult {
  using binding = session.createBinding();
  for (const name of ["key", "value"]) {
    const cache = session.allocateTensor("float32", kvShape);
    cache.copyFrom(new Float32Array(numKvHeads * maxLength * headDim));
    binding.bindInput(`past_${name}`, cache);
    binding.bindOutput(`present_${name}`, cache);
  }
  const { queries, keys, values } = attentionInputs(numTokens);
  const outputs = new Float32Array(numTokens * querySize);
  for (let start = 0; start < numTokens; start += tokensPerRun) {
    const rows = (data: Float32Array, size: number): Tensor =>
      Tensor.fromTypedArray("float32", data.subarray(start * size, (start + tokensPerRun) * size), [
        1,
        tokensPerRun,
        size,
      ]);
    using query = rows(queries, querySize);
    using key = rows(keys, kvSize);
    using value = rows(values, kvSize);
    using output = rows(outputs, querySize);
    using lengths = Tensor.fromTypedArray("int32", Int32Array.of(start + tokensPerRun - 1), [1]);
    using totalLength = Tensor.fromTypedArray("int32", Int32Array.of(start + tokensPerRun), []);
    binding.bindInput("query", query);
    binding.bindInput("key", key);
    binding.bindInput("value", value);
    binding.bindInput("seqlens_k", lengths);
    binding.bindInput("total_sequence_length", totalLength);
    binding.bindOutput("output", output);
    binding.run();
  }
  using cache = binding.output("present_key");
  return { outputs, keys: cache.copyToHost() as Float32Array };
}
