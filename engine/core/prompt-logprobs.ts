/** Logprobs of prompt tokens, computed a few rows of logits at a time. */
import type { SampledLogprobs } from "../contract/request-output.ts";
import { logprobsOf } from "../sampling/raw-logprobs.ts";
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";

/** Rows of logits in memory at once. With a vocabulary of 150,000 tokens they take 20 MB. */
const MAX_ROWS = 32;

/** Mutable. Splits a chunk into pieces, because all logits of a long prompt would take gigabytes. */
export class PromptLogprobs {
  readonly #vocabSize: number;
  /** Row-major [MAX_ROWS, vocabSize]; allocated for the first request that asks for prompt logprobs. */
  #logits = new Float32Array(0);
  /** For prompts in progress. An entry is garbage-collected with its sequence. */
  readonly #logprobs = new WeakMap<Sequence, SampledLogprobs[]>();

  constructor(vocabSize: number) {
    this.#vocabSize = vocabSize;
  }

  piecesOf({ sequence, firstToken, numTokens }: PrefillChunk): PrefillChunk[] {
    return Array.from({ length: Math.ceil(numTokens / MAX_ROWS) }, (_, piece) => ({
      sequence,
      firstToken: firstToken + piece * MAX_ROWS,
      numTokens: Math.min(MAX_ROWS, numTokens - piece * MAX_ROWS),
      imagesToEncode: [],
    }));
  }

  /** Row-major [piece.numTokens, vocabSize], to be filled. Valid until the next call. */
  logitsFor({ numTokens }: PrefillChunk): Float32Array {
    if (this.#logits.length === 0) this.#logits = new Float32Array(MAX_ROWS * this.#vocabSize);
    return this.#logits.subarray(0, numTokens * this.#vocabSize);
  }

  /** Each row predicts the token after it. The row of the last prompt token predicts no prompt token. */
  read({ sequence, firstToken, numTokens }: PrefillChunk, logits: Float32Array): void {
    const { promptTokenIds, samplingParams } = sequence;
    // A preempted prompt starts again.
    const logprobs = (firstToken === 0 ? undefined : this.#logprobs.get(sequence)) ?? [];
    this.#logprobs.set(sequence, logprobs);
    for (let row = 0; row < numTokens; row++) {
      const predicted = promptTokenIds[firstToken + row + 1];
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
