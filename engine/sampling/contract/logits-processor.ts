/**
 * The contract of logits processors: one instance per engine sees every row of the persistent batch. It behaves like
 * vLLM's "Custom Logits Processors".
 */
import type { DeviceName, EngineConfig } from "../../contract/config.ts";
import type { SamplingParams } from "../../contract/sampling-params.ts";

/**
 * A view of one step's logits, valid until `apply` returns. The engine copies a row before a processor first accesses
 * it, so that the edits of a failed processor can be undone. Access only the rows in use, not all of them.
 */
export interface Logits {
  readonly numRequests: number;
  readonly vocabSize: number;
  /** Row-major [numRequests, vocabSize]. Accesses every row. */
  readonly data: Float32Array;
  /** Row `index` as a view of `data`; edits are in place. */
  row(index: number): Float32Array;
}

export interface AddedRequest {
  /** Row at the time of the add, before `moved`. Discard any state that an earlier request left in it. */
  readonly index: number;
  readonly params: SamplingParams;
  readonly promptTokenIds: readonly number[];
  /** A live list: later tokens appear in it without another update. Do not copy it. Writing to it changes no answer. */
  readonly outputTokenIds: readonly number[];
}

export type MoveDirectionality = "unidirectional" | "swap";

export interface MovedRequest {
  readonly from: number;
  readonly to: number;
  readonly directionality: MoveDirectionality;
}

/** Rows removed, added and moved since the last step, to be replayed in that order. Read-only. */
export interface BatchUpdate {
  /** Number of rows after this update. */
  readonly batchSize: number;
  readonly removed: readonly number[];
  readonly added: readonly AddedRequest[];
  readonly moved: readonly MovedRequest[];
}

/**
 * An error thrown by `apply` or `updateState` ends the requests that the processor was serving. The others continue as
 * if those had not been there. If the engine has to find out which requests failed, it creates a new instance and adds
 * each row to it separately, with the output so far, as for a request that resumes after a preemption.
 */
export abstract class LogitsProcessor {
  /**
   * Checks a request before it reaches the engine.
   *
   * @throws Any error to reject the request. Its message goes to the client.
   */
  static validateParams?(params: SamplingParams): void;

  constructor(_engineConfig: EngineConfig, _device: DeviceName, _options: Readonly<Record<string, unknown>>) {}

  /**
   * Edits rows in place and returns `logits`, or returns another buffer of the same length. Called in each step that
   * samples. If no row uses the processor, returning `logits` at once costs nothing.
   */
  abstract apply(logits: Logits): Logits | Float32Array;

  /** Returns true if the processor never changes the most likely token of a row. Called once. */
  abstract isArgmaxInvariant(): boolean;

  /** Called before every step, after the newest tokens were appended. Null if no row changed. */
  abstract updateState(batchUpdate: BatchUpdate | null): void;
}
