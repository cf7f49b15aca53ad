/** The largest run over KV slots, before their memory is allocated. */
import { invariant } from "../contract/errors.ts";
import { createKvCache } from "../kv/create-kv-cache.ts";
import type { DecoderGraph } from "../models/built-model.ts";
import { outputWidthOf } from "../models/decoder-shape.ts";
import type { Session } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";
import { AdapterInputs } from "./adapter-inputs.ts";
import { DecoderBinding } from "./decoder-binding.ts";

export interface SlotLimits {
  readonly maxNumTokens: number;
  readonly maxNumSequences: number;
  /** Tokens of the longest sequence. */
  readonly maxLen: number;
}

/**
 * Computes the largest prompt chunk at the start of a sequence, with as many rows of logits as a step may have. Its slot
 * is as short as the chunk, because ONNX Runtime keeps the memory, which is too small for the slots of all sequences.
 */
export function runOnShortSlot(graph: DecoderGraph, session: Session, limits: SlotLimits): void {
  const { imageWidth, acceptsImages, takesPositions } = graph;
  invariant(graph.recurrent === undefined, "recurrent layers are served on no device whose memory is planned");
  const length = Math.min(limits.maxNumTokens, limits.maxLen);
  const numRows = Math.min(length, limits.maxNumSequences);
  const width = outputWidthOf(graph);
  using cache = createKvCache(session, graph, { numSlots: 1, maxLen: length });
  using run = new DecoderBinding(session, graph, cache.view(0, 1));
  run.setInput("input_ids", Tensor.fromTypedArray("int64", new BigInt64Array(length), [1, length]));
  run.setInput("seqlens_k", Tensor.fromTypedArray("int32", Int32Array.of(length - 1), [1]));
  run.setInput("total_sequence_length", Tensor.fromTypedArray("int32", Int32Array.of(length), []));
  run.setInput("logit_rows", Tensor.fromTypedArray("int64", new BigInt64Array(numRows), [numRows]));
  run.setOutput("logits", Tensor.fromTypedArray("float32", new Float32Array(numRows * width), [numRows, width]));
  if (acceptsImages) {
    run.setInput("image_embeds", Tensor.fromTypedArray("float32", new Float32Array(0), [0, imageWidth]));
    run.setInput("image_positions", Tensor.fromTypedArray("int64", new BigInt64Array(0), [0, 1]));
  }
  if (takesPositions) {
    run.setInput("positions", Tensor.fromTypedArray("int64", new BigInt64Array(3 * length), [3, length]));
  }
  if (graph.adapters !== undefined) new AdapterInputs(graph.adapters, length).bind(run);
  run.run();
}
