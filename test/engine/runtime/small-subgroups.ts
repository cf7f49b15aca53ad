/**
 * What ONNX Runtime 1.30's prefill kernel for WebGPU (`FlashAttention`, from 32 tokens in a run on) computes on an
 * adapter with subgroups of 4 lanes, as SwiftShader's are. Each lane holds one key and one value, and lanes read each
 * other's by `subgroupShuffle`. Two things go wrong:
 *
 * - The kernel adds 8 keys in each round where subgroups have up to 8 lanes, but loads as many as there are lanes, and
 *   goes on by as many. With 4 lanes, the shuffles from lanes 4 to 7 read lanes 0 to 3: keys count again, at the places
 *   of the 4 that follow, which the next round counts as well.
 * - The 8 sums of a round are variables that the kernel declares within its loop and does not set. WGSL sets such
 *   variables to 0 in each round; here they begin with what the round before left, its shares of the softmax.
 */
import type { AttentionInputs } from "./attention-steps.ts";
import { attentionSizes } from "./small-models.ts";

const { numHeads, headDim } = attentionSizes;
const NUM_LANES = 4;
const KEYS_PER_ROUND = 8;
const LOWEST = -3.4028234663852886e38;

/** [numTokens, numHeads * headDim]: causal attention of a prompt, with one head of keys, as the kernel computes it. */
export function attendWithFourLanes({ queries, keys, values }: AttentionInputs): Float32Array {
  const numTokens = keys.length / headDim;
  const outputs = new Float32Array(queries.length);
  for (let token = 0; token < numTokens; token++) {
    for (let head = 0; head < numHeads; head++) {
      const first = (token * numHeads + head) * headDim;
      const query = queries.subarray(first, first + headDim);
      outputs.set(attendToken(query, token, { queries, keys, values }), first);
    }
  }
  return outputs;
}

function attendToken(query: Float32Array, token: number, { keys, values }: AttentionInputs): Float32Array {
  const numTokens = keys.length / headDim;
  const output = new Float64Array(headDim);
  let scores = new Float64Array(KEYS_PER_ROUND);
  let [largest, denominator] = [LOWEST, 0];
  for (let start = 0; start < numTokens; start += NUM_LANES) {
    const rows = Array.from(scores, (_, place) => start + (place % NUM_LANES));
    scores = scores.map((left, place) =>
      start + place > token ? LOWEST : left + dot(query, keys, rows[place]!) / Math.sqrt(headDim),
    );
    const newLargest = Math.max(largest, ...scores);
    scores = scores.map((score) => Math.exp(score - newLargest));
    const kept = denominator * Math.exp(largest - newLargest);
    denominator = kept + scores.reduce((sum, share) => sum + share, 0);
    scores = scores.map((share) => share / denominator);
    for (let index = 0; index < headDim; index++) {
      output[index]! *= kept / denominator;
      for (const [place, row] of rows.entries()) output[index]! += scores[place]! * values[row * headDim + index]!;
    }
    largest = newLargest;
  }
  return Float32Array.from(output);
}

function dot(query: Float32Array, keys: Float32Array, row: number): number {
  return query.reduce((sum, value, index) => sum + value * keys[row * headDim + index]!, 0);
}
