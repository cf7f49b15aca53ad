/**
 * The contract of logits processors: one instance per engine sees every row of the persistent batch.
 * Behaviour as in vLLM's "Custom Logits Processors".
 */
import type { DeviceName, EngineConfig } from "../../contract/config.ts";
import type { SamplingParams } from "../../contract/sampling-params.ts";

/**
 * View of one step's logits; valid until `apply` returns. The engine keeps a copy of what a row held before a processor
 * asked for it, so that a processor that fails leaves no trace: ask for the rows in use, not for all.
 */
export interface Logits {
  readonly numRequests: number;
  readonly vocabSize: number;
  /** Row-major [numRequests, vocabSize]: asks for every row. */
  readonly data: Float32Array;
  /** Row `index` as a view of `data`: edits are in place. */
  row(index: number): Float32Array;
}

export interface AddedRequest {
  /** Row at the time of the add, before `moved`; may be occupied, whose old state is then discarded. */
  readonly index: number;
  readonly params: SamplingParams;
  readonly promptTokenIds: readonly number[];
  /** A live list: later tokens appear in it without another update; do not copy it. Writing to it changes no answer. */
  readonly outputTokenIds: readonly number[];
}

export type MoveDirectionality = "unidirectional" | "swap";

export interface MovedRequest {
  readonly from: number;
  readonly to: number;
  readonly directionality: MoveDirectionality;
}

/** Rows removed, added and moved since the last step; to be replayed in that order. Not to be mutated. */
export interface BatchUpdate {
  /** Rows after this update. */
  readonly batchSize: number;
  readonly removed: readonly number[];
  readonly added: readonly AddedRequest[];
  readonly moved: readonly MovedRequest[];
}

/**
 * An error of `apply` or `updateState` ends the requests that the processor was serving. The other requests go on as if
 * those had not been there. To find out which requests they are, the engine makes a new instance and adds each row to it
 * alone, with the output so far, as it does with a request that comes back after a pause.
 */
export abstract class LogitsProcessor {
  /**
   * Checks a request before it reaches the engine.
   *
   * @throws Any error to refuse the request. Its message goes to the client.
   */
  static validateParams?(params: SamplingParams): void;

  constructor(_engineConfig: EngineConfig, _device: DeviceName, _options: Readonly<Record<string, unknown>>) {}

  /**
   * Edits rows in place and returns `logits`, or returns another buffer of the same length. Called in each step that
   * samples; one that returns `logits` at once, because no row uses the processor, costs the step nothing.
   */
  abstract apply(logits: Logits): Logits | Float32Array;

  /** True when the processor never changes which token of a row is the most likely. Asked once. */
  abstract isArgmaxInvariant(): boolean;

  /** Called before every step, after the newest tokens were appended; null when no row changed. */
  abstract updateState(batchUpdate: BatchUpdate | null): void;
}
