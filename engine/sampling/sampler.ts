/** Samples one token per row from one step's logits. */
import { EngineError } from "../contract/errors.ts";
import type { SampledLogprobs } from "../contract/request-output.ts";
import { isGreedy } from "../contract/sampling-params.ts";
import type { SamplingParams } from "../contract/sampling-params.ts";
import { dropUnlikely } from "./built-in/min-p.ts";
import type { ProcessedRow } from "./custom/replay-rows.ts";
import { CandidateDraw, mostLikely, UNDECIDED } from "./draw/candidate-draw.ts";
import { uniformAt } from "./draw/random.ts";
import { NO_TOKEN, TokenDraw } from "./draw/token-draw.ts";
import { GuardedLogits } from "./guarded-logits.ts";
import type { ProcessorChain } from "./processor-chain.ts";
import { RawLogprobs } from "./raw-logprobs.ts";
import { scale } from "./row-operations.ts";
import type { StepLogits } from "./step-logits.ts";

/** The sampler's view of a row of the persistent batch. */
export interface SamplingRow extends ProcessedRow {
  readonly seed: number;
}

export type SampledRow =
  | {
      readonly kind: "sampled";
      readonly tokenId: number;
      /** Null if the request does not ask for logprobs. */
      readonly logprobs: SampledLogprobs | null;
    }
  | { readonly kind: "failed"; readonly error: EngineError };

const NOT_CAPTURED = -1;

/** Mutable scratch memory; one per engine. */
export class Sampler {
  readonly #processors: ProcessorChain;
  readonly #logits: StepLogits;
  readonly #guardedLogits: GuardedLogits;
  readonly #draw: TokenDraw;
  readonly #candidateDraw = new CandidateDraw();
  readonly #rawLogprobs: RawLogprobs;
  /** By row: the number of the captured raw row, or `NOT_CAPTURED`. */
  readonly #captured: Int32Array;
  /** By row: the most likely token before the temperature; filled only for greedy rows. */
  readonly #greedyTokenIds: Int32Array;
  /** By row: whether its logits have been divided by its temperature. */
  readonly #isScaled: Uint8Array;
  /** Rows of the current step that are divided by their temperatures when a processor accesses them. */
  #rowsToScale: readonly SamplingRow[] | null = null;

  /** @param logits Memory of each step's logits; the sampler edits it. */
  constructor(processors: ProcessorChain, logits: StepLogits) {
    this.#processors = processors;
    this.#logits = logits;
    this.#guardedLogits = new GuardedLogits(logits, (...row) => this.#prepareRow(...row));
    this.#draw = new TokenDraw(logits.kernel);
    this.#rawLogprobs = new RawLogprobs();
    this.#captured = new Int32Array(logits.maxNumRequests);
    this.#greedyTokenIds = new Int32Array(logits.maxNumRequests);
    this.#isScaled = new Uint8Array(logits.maxNumRequests);
  }

  /**
   * Samples row i of the logits for `rows[i]`. The order is that of vLLM's sampler: grammars, raw logprobs, processors
   * that may change the argmax, penalties, thinking budget, greedy choice, temperature, the other processors, top-k,
   * top-p, draw. A row fails if a custom processor failed at it, if no token is left, or if its grammar forbids the drawn token.
   */
  sample(rows: readonly SamplingRow[]): SampledRow[] {
    if (this.#processors.hasCustom) this.#guardedLogits.beginStep();
    this.#logits.read((rowIndex) => this.#readsRow(rows[rowIndex]!, rowIndex));
    this.#processors.applyGrammars(this.#guardedLogits);
    this.#captureRawLogprobs(rows);
    this.#processors.applyArgmaxChanging(this.#guardedLogits);
    const allGreedy = this.#chooseGreedy(rows);
    this.#isScaled.fill(0);
    if (!allGreedy) {
      this.#rowsToScale = rows;
      this.#processors.applyArgmaxInvariant(this.#guardedLogits);
      this.#rowsToScale = null;
    }
    return rows.map((row, rowIndex) => this.#sampleRow(row, rowIndex));
  }

  /** Whether the row is going to be read, whatever its candidates are. */
  #readsRow({ samplingParams }: SamplingRow, rowIndex: number): boolean {
    return samplingParams.logprobs !== null || this.#processors.readsRow(rowIndex);
  }

  #sampleRow(row: SamplingRow, rowIndex: number): SampledRow {
    const error = this.#processors.errorOf(rowIndex);
    if (error !== null) return { kind: "failed", error };
    const tokenId = isGreedy(row.samplingParams) ? this.#greedyTokenIds[rowIndex]! : this.#drawToken(row, rowIndex);
    if (tokenId === NO_TOKEN) return { kind: "failed", error: this.#noTokenLeft(rowIndex) };
    const refusal = this.#processors.errorWith(rowIndex, tokenId, this.#guardedLogits);
    if (refusal !== null) return { kind: "failed", error: refusal };
    return { kind: "sampled", tokenId, logprobs: this.#readLogprobs(row, rowIndex, tokenId) };
  }

  /** Blames the custom processors that had the row, if any, otherwise the request's constraints. */
  #noTokenLeft(rowIndex: number): EngineError {
    const askers = this.#guardedLogits.askersOf(rowIndex);
    if (askers.length > 0) {
      const message = `No token is left to sample: every logit is -Infinity or NaN after the logits processors ${askers.join(", ")}.`;
      return new EngineError("logits_processor_failed", message);
    }
    if (this.#logits.row(rowIndex).some(Number.isNaN)) {
      return new EngineError(
        "runtime_failed",
        "No token is left to sample: the model returned logits that are not numbers.",
      );
    }
    return new EngineError(
      "invalid_argument",
      "No token is left to sample: the request's constraints exclude every token.",
    );
  }

  #captureRawLogprobs(rows: readonly SamplingRow[]): void {
    let numCaptured = 0;
    for (let rowIndex = 0; rowIndex < rows.length; rowIndex++) {
      this.#captured[rowIndex] = NOT_CAPTURED;
      if (rows[rowIndex]!.samplingParams.logprobs === null) continue;
      this.#rawLogprobs.capture(numCaptured, this.#logits.row(rowIndex));
      this.#captured[rowIndex] = numCaptured++;
    }
  }

  /** Returns whether every row is greedy. */
  #chooseGreedy(rows: readonly SamplingRow[]): boolean {
    let allGreedy = true;
    for (let rowIndex = 0; rowIndex < rows.length; rowIndex++) {
      if (isGreedy(rows[rowIndex]!.samplingParams)) this.#greedyTokenIds[rowIndex] = this.#mostLikely(rowIndex);
      else allGreedy = false;
    }
    return allGreedy;
  }

  /** The most likely token of the row, the lowest id among equals; `noToken` if there is none. */
  #mostLikely(rowIndex: number): number {
    const candidates = this.#logits.candidatesOf(rowIndex);
    const tokenId = candidates === null ? UNDECIDED : mostLikely(candidates);
    if (tokenId !== UNDECIDED) return tokenId;
    return this.#logits.kernel.argmax(this.#logits.row(rowIndex));
  }

  /**
   * Scales a row that a processor accesses. Any other row is scaled during the draw. Min-p skips deferred rows, so it is
   * applied here if the row was deferred.
   */
  #prepareRow(rowIndex: number, wasDeferred: boolean): void {
    if (this.#rowsToScale === null || this.#isScaled[rowIndex] === 1) return;
    const { samplingParams } = this.#rowsToScale[rowIndex]!;
    if (!isGreedy(samplingParams)) this.#scaleRow(samplingParams, rowIndex, wasDeferred);
  }

  #scaleRow(samplingParams: SamplingParams, rowIndex: number, wasDeferred: boolean): void {
    this.#isScaled[rowIndex] = 1;
    const row = this.#logits.row(rowIndex);
    scale(row, inverseTemperature(samplingParams));
    if (wasDeferred && samplingParams.minP > 0) dropUnlikely(row, samplingParams.minP);
  }

  #drawToken({ samplingParams, seed, outputTokenIds }: SamplingRow, rowIndex: number): number {
    const { topK, topP, minP } = samplingParams;
    const uniform = uniformAt(seed, outputTokenIds.length);
    const candidates = this.#logits.candidatesOf(rowIndex);
    if (candidates !== null) {
      const options = { scale: inverseTemperature(samplingParams), topK, topP, minP, uniform };
      const tokenId = this.#candidateDraw.draw(candidates, options);
      if (tokenId !== UNDECIDED) return tokenId;
      if (minP > 0) this.#scaleRow(samplingParams, rowIndex, true);
    }
    const rowScale = this.#isScaled[rowIndex] === 1 ? 1 : inverseTemperature(samplingParams);
    return this.#draw.draw(this.#logits.row(rowIndex), { scale: rowScale, topK, topP, uniform });
  }

  #readLogprobs({ samplingParams }: SamplingRow, rowIndex: number, tokenId: number): SampledLogprobs | null {
    const captured = this.#captured[rowIndex]!;
    return captured === NOT_CAPTURED ? null : this.#rawLogprobs.read(captured, tokenId, samplingParams.logprobs!);
  }
}

/** A float32, so that a row scaled in place gives the same draws as one scaled during the draw. */
export function inverseTemperature({ temperature }: SamplingParams): number {
  return Math.fround(1 / temperature);
}
