/** Logprobs of prompt tokens, computed a few rows of logits at a time. */
import type { SampledLogprobs } from "../contract/request-output.ts";
import { logprobsOf } from "../sampling/raw-logprobs.ts";
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { wholeSpans, type ImageRuns } from "../scheduler/whole-images.ts";
import type { PromptPiece, PromptRows } from "./prompt-rows.ts";

/** Rows of logits in memory at once. With a vocabulary of 150,000 tokens they take 20 MB. */
const MAX_ROWS = 32;

/**
 * Mutable. Splits a chunk into pieces, because all logits of a long prompt would take gigabytes. An image that must be
 * whole is computed once for every `MAX_ROWS` of its tokens.
 */
export class PromptLogprobs implements PromptRows {
  readonly #vocabSize: number;
  readonly #imageRuns: ImageRuns;
  /** Row-major [MAX_ROWS, vocabSize]; allocated for the first request that asks for prompt logprobs. */
  #logits = new Float32Array(0);
  /** For prompts in progress. An entry is garbage-collected with its sequence. */
  readonly #logprobs = new WeakMap<Sequence, SampledLogprobs[]>();

  constructor(vocabSize: number, imageRuns: ImageRuns) {
    this.#vocabSize = vocabSize;
    this.#imageRuns = imageRuns;
  }

  piecesOf({ sequence, firstToken, numTokens }: PrefillChunk): PromptPiece[] {
    const pieces: PromptPiece[] = [];
    const endToken = firstToken + numTokens;
    for (let start = firstToken; start < endToken;) {
      const end = Math.min(this.#endOfRun(sequence, start), endToken);
      const run = { sequence, firstToken: start, numTokens: end - start, imagesToEncode: [] };
      for (let firstRow = start; firstRow < end; firstRow += MAX_ROWS) {
        const numRows = Math.min(MAX_ROWS, end - firstRow);
        pieces.push({ ...run, firstRow, numRows, numTokensBehind: end - firstRow - numRows });
      }
      start = end;
    }
    return pieces;
  }

  /** Before or behind an image that must be whole. */
  #endOfRun({ images }: Sequence, start: number): number {
    const end = start + MAX_ROWS;
    const cut = wholeSpans(images, this.#imageRuns).find((span) => span.start < end && end < span.end);
    if (cut === undefined) return end;
    return cut.start > start ? cut.start : cut.end;
  }

  rowsFor({ numRows }: PromptPiece): Float32Array {
    if (this.#logits.length === 0) this.#logits = new Float32Array(MAX_ROWS * this.#vocabSize);
    return this.#logits.subarray(0, numRows * this.#vocabSize);
  }

  /** Each row predicts the token after it. The row of the last prompt token predicts no prompt token. */
  read({ sequence, firstRow, numRows }: PromptPiece, logits: Float32Array): void {
    const { promptTokenIds, samplingParams } = sequence;
    // A preempted prompt starts again.
    const logprobs = (firstRow === 0 ? undefined : this.#logprobs.get(sequence)) ?? [];
    this.#logprobs.set(sequence, logprobs);
    for (let row = 0; row < numRows; row++) {
      const predicted = promptTokenIds[firstRow + row + 1];
      if (predicted === undefined) break;
      const values = logits.subarray(row * this.#vocabSize, (row + 1) * this.#vocabSize);
      logprobs.push(logprobsOf(values, predicted, samplingParams.promptLogprobs!));
    }
  }

  /** The logprobs of the whole prompt, once. Null if the request did not ask for them, and for later tokens. */
  take(sequence: Sequence): SampledLogprobs[] | null {
    const logprobs = this.#logprobs.get(sequence) ?? null;
    this.#logprobs.delete(sequence);
    return logprobs;
  }
}
