/** Smaller steps after a device had no memory for one. */
import process from "node:process";

import { EngineError } from "../contract/errors.ts";
import type { Sequence } from "./sequence.ts";

/** Steps that must succeed before a larger one is tried. Their number doubles with each failure. */
const FIRST_PATIENCE = 16;

/** A server that runs for days tries a larger step once in a while, because the memory may have been another program's. */
const MAX_PATIENCE = 1024;

/** The size of a run that found no memory. */
export interface FailedRun {
  readonly numTokens: number;
  readonly numSequences: number;
}

/** Of steps while none has found too little memory. */
export const noStepLimit: Pick<StepLimit, "maxTokens" | "maxSequences"> = {
  maxTokens: Infinity,
  maxSequences: Infinity,
};

/** Mutable. Makes steps smaller after one found no memory, and larger again while they succeed. */
export class StepLimit {
  readonly #fewestTokens: number;
  #maxTokens = Infinity;
  #maxSequences = Infinity;
  #patience = FIRST_PATIENCE;
  #numSuccesses = 0;

  /** @param fewestTokens A step of so many tokens cannot be made smaller. */
  constructor(fewestTokens: number) {
    this.#fewestTokens = fewestTokens;
  }

  /** Tokens that a step may have. */
  get maxTokens(): number {
    return this.#maxTokens;
  }

  /** Sequences that a step may have. */
  get maxSequences(): number {
    return this.#maxSequences;
  }

  /** Whether a smaller run could succeed. */
  canShrink({ numTokens, numSequences }: FailedRun): boolean {
    return numSequences > 1 || numTokens > this.#fewestTokens;
  }

  /**
   * Halves the tokens of steps, or their sequences if the run had one token of each. Call it once for a step that failed,
   * with the largest of its runs that did.
   *
   * @param reason For the log, the first time.
   */
  shrink({ numTokens, numSequences }: FailedRun, reason: string): void {
    const isFirst = !this.#isLimited;
    if (numTokens > Math.max(numSequences, this.#fewestTokens)) {
      this.#maxTokens = Math.max(this.#fewestTokens, Math.floor(numTokens / 2));
    } else {
      this.#maxSequences = Math.max(1, Math.floor(numSequences / 2));
    }
    this.#patience = Math.min(2 * this.#patience, MAX_PATIENCE);
    this.#numSuccesses = 0;
    if (!isFirst) return;
    process.emitWarning(
      `The device had no memory for a step (tokens: ${numTokens}, sequences: ${numSequences}). Its sequences are preempted, ` +
        "and steps stay smaller for a while. If this happens again, set a lower limit of batched tokens or of sequences. " +
        reason,
    );
  }

  /** Call it for each step that succeeded. Returns to steps of any size by doubling, up to `maxTokens` and `maxSequences`. */
  noteSuccess(maxTokens: number, maxSequences: number): void {
    if (!this.#isLimited || ++this.#numSuccesses < this.#patience) return;
    this.#numSuccesses = 0;
    this.#maxTokens *= 2;
    this.#maxSequences *= 2;
    if (this.#maxTokens < maxTokens || this.#maxSequences < maxSequences) return;
    this.#maxTokens = Infinity;
    this.#maxSequences = Infinity;
  }

  get #isLimited(): boolean {
    return this.#maxTokens !== Infinity || this.#maxSequences !== Infinity;
  }
}

/** The error of a sequence whose smallest run found no memory. ONNX Runtime's text names the host, so only the log has it. */
export function aloneError({ requestId, numTokens }: Sequence, error: EngineError): EngineError {
  process.emitWarning(`The device has too little memory for request ${requestId} alone. ${error.message}`);
  return new EngineError(
    error.code,
    `The device has too little memory for this request, which has ${numTokens} tokens, even if it is computed alone. ` +
      "Send a shorter prompt or smaller images.",
    { cause: error },
  );
}
