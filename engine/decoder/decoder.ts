/** Computes tokens: a decoder's session together with the KV cache. */
import type { SlotTransfer } from "../kv/slot-transfer.ts";
import type { StepLogits } from "../sampling/step-logits.ts";
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import type { FeaturePool } from "../vision/feature-pool.ts";

/** Embeddings that replace tokens of a span. */
export interface SpanEmbeddings {
  /** Row-major [positions.length, hiddenSize], without those that are in the decoder's feature pool. */
  readonly embeddings: Float32Array;
  /** Indices into the span. */
  readonly positions: BigInt64Array;
  /**
   * For each position, the row of the feature pool; -1 for the next row of `embeddings`. Null for a decoder without a
   * pool.
   */
  readonly poolRows?: BigInt64Array | null;
}

export const noEmbeddings: SpanEmbeddings = { embeddings: new Float32Array(0), positions: new BigInt64Array(0) };

/** Neighbouring tokens of one sequence: a chunk of a prompt, or the newest token, alone or with a draft. */
export interface TokenSpan {
  readonly sequence: Sequence;
  readonly firstToken: number;
  /** The first token after the span. */
  readonly endToken: number;
  /** The predictions of this many tokens are wanted: of the last ones before `numTokensBehind`. */
  readonly numLogits: number;
  /** The predictions of this many last tokens are not wanted. Left out: 0. */
  readonly numTokensBehind?: number;
  readonly embeddings: SpanEmbeddings;
  /** The last tokens of the span, if the sequence does not have them yet. Left out: none. */
  readonly draftTokenIds?: readonly number[];
}

/** In order. */
export function spanTokenIds({ sequence, firstToken, endToken, draftTokenIds = [] }: TokenSpan): number[] {
  return [...sequence.tokenIdsBetween(firstToken, endToken), ...draftTokenIds];
}

/** The work of one step that is computed together. */
export interface DecoderRun {
  /** Sequences that compute their newest token. */
  readonly decodes: readonly Sequence[];
  readonly chunks: readonly PrefillChunk[];
}

/** Where a run leaves its predictions. */
export interface LogitsTarget {
  /** Row-major [sum of numLogits, outputWidth]. */
  readonly rows: Float32Array;
  /** The step's logits, of which `rows` are a part, if the decoder may defer them; null if they must be written. */
  readonly step: { readonly logits: StepLogits; readonly firstRow: number } | null;
}

export interface Decoder extends Disposable {
  /** Whether kept tokens can be moved between slots. */
  readonly canTransfer: boolean;
  /**
   * Whether the tokens of a failed run may be computed again. False if it may have replaced recurrent states; keys and
   * values are only written again.
   */
  readonly canRepeat: boolean;
  /** Where image features may lie; null for a decoder that takes them from the host. */
  readonly featurePool?: FeaturePool | null;
  /**
   * Whether prompts run after the decodes, and all logits are written by the end of a run. Requests that arrive
   * during the decodes then join the step.
   */
  readonly runsPromptsApart: boolean;
  /**
   * Null if a run can compute newest tokens together with a draft, of which the last tokens may be taken back. Otherwise the
   * reason, as the end of a sentence.
   */
  readonly draftObstacle: string | null;
  transfer(transfer: SlotTransfer): void;
  /** Divides the work of a step into runs. Their order is that of the rows of logits. */
  planRuns(decodes: readonly Sequence[], chunks: readonly PrefillChunk[]): readonly DecoderRun[];
  /**
   * Computes the spans of one run, and leaves the predictions in the order of the spans.
   *
   * @throws EngineError `runtime_failed`. With `canRepeat`, the same tokens may be computed again afterwards.
   */
  compute(spans: readonly TokenSpan[], target: LogitsTarget): void;
}
