/** The decoder's outputs for all tokens of a prompt, for embeddings of tokens. */
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import type { PromptPiece, PromptRows } from "./prompt-rows.ts";

/** Mutable. The rows of a chunk are computed at once, where they stay. */
export class PromptStates implements PromptRows {
  readonly #width: number;
  /** Row-major [tokens, width], for prompts in progress. An entry is garbage-collected with its sequence. */
  readonly #states = new WeakMap<Sequence, Float32Array>();

  constructor(width: number) {
    this.#width = width;
  }

  piecesOf(chunk: PrefillChunk): PromptPiece[] {
    const { firstToken, numTokens } = chunk;
    return [{ ...chunk, imagesToEncode: [], firstRow: firstToken, numRows: numTokens, numTokensBehind: 0 }];
  }

  rowsFor({ sequence, firstRow, numRows }: PromptPiece): Float32Array {
    let states = this.#states.get(sequence);
    if (states === undefined) {
      states = new Float32Array(sequence.numPromptTokens * this.#width);
      this.#states.set(sequence, states);
    }
    return states.subarray(firstRow * this.#width, (firstRow + numRows) * this.#width);
  }

  read(): void {
    // They lie where they stay.
  }

  /** The rows of the whole prompt, once. */
  take(sequence: Sequence): Float32Array {
    const states = this.#states.get(sequence) ?? new Float32Array(0);
    this.#states.delete(sequence);
    return states;
  }
}
