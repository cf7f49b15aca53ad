/** Turns one step's logits into one token per row. */
import type { SampledLogprobs } from "../request-output.ts";
import { isGreedy } from "../sampling-params.ts";
import type { SamplingParams } from "../sampling-params.ts";
import type { ProcessorChain } from "./processor-chain.ts";
import { uniformAt } from "./random.ts";
import { RawLogprobs } from "./raw-logprobs.ts";
import { argmax, scale } from "./row-operations.ts";
import type { StepLogits } from "./step-logits.ts";
import { TokenDraw } from "./token-draw.ts";

/** What the sampler asks of a row of the persistent batch. */
export interface SamplingRow {
  readonly samplingParams: SamplingParams;
  readonly seed: number;
  readonly outputTokenIds: readonly number[];
}

export interface SampledToken {
  /** `noToken` when processors or the model left no token: every logit is -Infinity or NaN. */
  readonly tokenId: number;
  /** Null when the request asks for none. */
  readonly logprobs: SampledLogprobs | null;
}

/** In the place of a token id. */
export const noToken = -1;

const notCaptured = -1;

/** Mutable scratch memory; one per engine. */
export class Sampler {
  readonly #processors: ProcessorChain;
  readonly #draw: TokenDraw;
  readonly #rawLogprobs = new RawLogprobs();
  /** By row: the captured raw row, or `notCaptured`. */
  readonly #captured: Int32Array;
  /** By row: the most likely token before the temperature; only filled for greedy rows. */
  readonly #greedyTokenIds: Int32Array;

  constructor(processors: ProcessorChain, maxNumRequests: number, vocabSize: number) {
    this.#processors = processors;
    this.#draw = new TokenDraw(vocabSize);
    this.#captured = new Int32Array(maxNumRequests);
    this.#greedyTokenIds = new Int32Array(maxNumRequests);
  }

  /**
   * Samples row i of `logits` for `rows[i]`; edits `logits`. Order as in vLLM's sampler: raw logprobs, processors that
   * may change the argmax, greedy choice, temperature, the other processors, top-k, top-p, draw. Throws EngineError
   * `logits_processor_failed`.
   */
  sample(logits: StepLogits, rows: readonly SamplingRow[]): SampledToken[] {
    this.#captureRawLogprobs(logits, rows);
    this.#processors.applyArgmaxChanging(logits);
    const allGreedy = this.#chooseGreedy(logits, rows);
    const isScaled = !allGreedy && this.#processors.hasActiveArgmaxInvariant();
    if (isScaled) {
      this.#applyTemperature(logits, rows);
      this.#processors.applyArgmaxInvariant(logits);
    }
    return rows.map((row, rowIndex) => {
      const tokenId = isGreedy(row.samplingParams)
        ? this.#greedyTokenIds[rowIndex]
        : this.#drawToken(logits.row(rowIndex), row, isScaled);
      return { tokenId, logprobs: this.#readLogprobs(rowIndex, row, tokenId) };
    });
  }

  #captureRawLogprobs(logits: StepLogits, rows: readonly SamplingRow[]): void {
    this.#rawLogprobs.clear();
    for (let rowIndex = 0; rowIndex < rows.length; rowIndex++) {
      const isWanted = rows[rowIndex].samplingParams.logprobs !== null;
      this.#captured[rowIndex] = isWanted ? this.#rawLogprobs.capture(logits.row(rowIndex)) : notCaptured;
    }
  }

  /** Whether every row is greedy. */
  #chooseGreedy(logits: StepLogits, rows: readonly SamplingRow[]): boolean {
    let allGreedy = true;
    for (let rowIndex = 0; rowIndex < rows.length; rowIndex++) {
      if (isGreedy(rows[rowIndex].samplingParams)) this.#greedyTokenIds[rowIndex] = argmax(logits.row(rowIndex));
      else allGreedy = false;
    }
    return allGreedy;
  }

  #applyTemperature(logits: StepLogits, rows: readonly SamplingRow[]): void {
    for (let rowIndex = 0; rowIndex < rows.length; rowIndex++) {
      const { samplingParams } = rows[rowIndex];
      if (!isGreedy(samplingParams)) scale(logits.row(rowIndex), 1 / samplingParams.temperature);
    }
  }

  #drawToken(
    logitsRow: Float32Array,
    { samplingParams, seed, outputTokenIds }: SamplingRow,
    isScaled: boolean,
  ): number {
    return this.#draw.draw(logitsRow, {
      scale: isScaled ? 1 : 1 / samplingParams.temperature,
      topK: samplingParams.topK,
      topP: samplingParams.topP,
      uniform: uniformAt(seed, outputTokenIds.length),
    });
  }

  #readLogprobs(rowIndex: number, { samplingParams }: SamplingRow, tokenId: number): SampledLogprobs | null {
    const captured = this.#captured[rowIndex];
    if (captured === notCaptured || tokenId === noToken) return null;
    return this.#rawLogprobs.read(captured, tokenId, samplingParams.logprobs!);
  }
}
