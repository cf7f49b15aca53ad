/** Runs a decoder's graph over a KV cache, without a scheduler. */
import { DecoderBinding } from "../../../engine/decoder/decoder-binding.ts";
import type { KvCache } from "../../../engine/kv/kv-cache.ts";
import type { BuiltModel, DecoderGraph } from "../../../engine/models/built-model.ts";
import type { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";

export function inGraph({ decoder }: BuiltModel): DecoderGraph {
  if (decoder.form !== "in-place") throw new Error("the golden model is a graph of ours");
  return decoder;
}

/** One run of neighbouring slots, as the decoder makes it: the logits of the last token of each, one after the other. */
export function run(
  { cache, session, graph }: { cache: KvCache; session: Session; graph: DecoderGraph },
  firstSlot: number,
  tokenIds: readonly (readonly number[])[],
  numComputed: readonly number[],
): Float32Array {
  const { length } = tokenIds[0]!;
  const numRows = tokenIds.length;
  using binding = new DecoderBinding(session, graph, cache.view(firstSlot, numRows));
  const lengths = numComputed.map((computed) => computed + length);
  const int64 = (values: readonly number[], shape: readonly number[]): Tensor =>
    Tensor.fromTypedArray("int64", BigInt64Array.from(values, BigInt), shape);
  binding.setInput("input_ids", int64(tokenIds.flat(), [numRows, length]));
  const lastPlaces = Int32Array.from(lengths, (total) => total - 1);
  binding.setInput("seqlens_k", Tensor.fromTypedArray("int32", lastPlaces, [numRows]));
  binding.setInput("total_sequence_length", Tensor.fromTypedArray("int32", Int32Array.of(Math.max(...lengths)), []));
  const rows = Array.from({ length: numRows }, (_, row) => (row + 1) * length - 1);
  binding.setInput("logit_rows", int64(rows, [numRows]));
  const logits = new Float32Array(numRows * graph.vocabSize);
  binding.setOutput("logits", Tensor.fromTypedArray("float32", logits, [numRows, graph.vocabSize]));
  binding.run();
  return logits;
}

export function maxDifference(left: Float32Array, right: Float32Array): number {
  return left.reduce((largest, value, index) => Math.max(largest, Math.abs(value - right[index]!)), 0);
}
