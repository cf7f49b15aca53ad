/** Rows of the decoder's output for every token of a prompt, not only for the last one. */
import type { PrefillChunk } from "../scheduler/scheduler-output.ts";

/** A run over tokens of a prompt that returns the rows of some of them. */
export interface PromptPiece extends PrefillChunk {
  /** The first token whose row it returns. */
  readonly firstRow: number;
  readonly numRows: number;
  /** Tokens of the run behind these. */
  readonly numTokensBehind: number;
}

export interface PromptRows {
  /** In the order of their rows. The last one ends with the chunk. */
  piecesOf(chunk: PrefillChunk): PromptPiece[];
  /** Row-major [piece.numRows, width], to be filled. Valid until the next call. */
  rowsFor(piece: PromptPiece): Float32Array;
  read(piece: PromptPiece, rows: Float32Array): void;
}
