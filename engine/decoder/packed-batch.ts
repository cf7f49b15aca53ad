/** The tokens of all sequences of a run, one after the other, as inputs of a paged decoder graph. */
import { SCRATCH_BLOCK_ID } from "../kv/block-pool.ts";
import type { DecoderGraph } from "../models/built-model.ts";
import { isGreedy } from "../contract/sampling-params.ts";
import { inverseTemperature } from "../sampling/sampler.ts";
import type { TokenSpan } from "./decoder.ts";
import { writePositions } from "./token-positions.ts";

export interface PackedBatchLimits {
  readonly maxNumTokens: number;
  readonly maxNumSequences: number;
  /** Blocks of the longest sequence. */
  readonly maxNumColumns: number;
}

type ImageInputs = Pick<DecoderGraph, "hiddenSize" | "takesPositions">;

/** Row of a token that is not an image. */
const TEXT_ROW = -1n;

/** Mutable; `pack` overwrites it. Only the first elements of an array are in use, as the counts say. */
export class PackedBatch {
  numTokens = 0;
  numSequences = 0;
  /** Columns of the block table: blocks of the longest sequence, before or after rounding up. */
  numColumns = 0;
  /** Rows of logits; at least 1, also if nobody wants it. */
  numLogits = 1;
  /** Tokens of the longest span. */
  maxSpanLength = 0;
  /** Tokens of the longest sequence, after the run. */
  maxLength = 0;
  /** [numTokens] */
  readonly inputIds: BigInt64Array;
  /** [numSequences + 1]: tokens of all sequences before each. */
  readonly cumulativeLengths: Int32Array;
  /** [numSequences]: tokens that each sequence has computed before. */
  readonly pastLengths: Int32Array;
  /** Row-major [numSequences, numColumns]; -1 is no block. */
  readonly blockTable: Int32Array;
  /** [numLogits]: indices into the tokens. */
  readonly logitRows: BigInt64Array;
  /** [numLogits]: what the row's logits are multiplied by before the mass is computed; 1 for a greedy row. */
  readonly inverseTemperatures: Float32Array;
  /** Row-major [3, numTokens]. */
  positions = new BigInt64Array(0);
  /** [numTokens]: row of the image pool, or -1. */
  readonly imageRows: BigInt64Array;
  /** Row-major [rows, hiddenSize]; at least one row. */
  imagePool: Float32Array;
  readonly #takesPositions: boolean;
  readonly #hiddenSize: number;

  constructor(
    { maxNumTokens, maxNumSequences, maxNumColumns }: PackedBatchLimits,
    { hiddenSize, takesPositions }: ImageInputs,
  ) {
    this.inputIds = new BigInt64Array(maxNumTokens);
    this.cumulativeLengths = new Int32Array(maxNumSequences + 1);
    this.pastLengths = new Int32Array(maxNumSequences);
    this.blockTable = new Int32Array(maxNumSequences * maxNumColumns);
    this.logitRows = new BigInt64Array(maxNumTokens);
    this.inverseTemperatures = new Float32Array(maxNumTokens).fill(1);
    this.imageRows = new BigInt64Array(maxNumTokens);
    this.imagePool = new Float32Array(hiddenSize);
    this.#takesPositions = takesPositions;
    this.#hiddenSize = hiddenSize;
  }

  get numPoolRows(): number {
    return this.imagePool.length / this.#hiddenSize;
  }

  /** @param columnsFor The number of columns for sequences of at most this many blocks. */
  pack(spans: readonly TokenSpan[], columnsFor: (numBlocks: number) => number): void {
    this.#measure(spans, columnsFor);
    if (this.#takesPositions && this.positions.length !== 3 * this.numTokens) {
      this.positions = new BigInt64Array(3 * this.numTokens);
    }
    let token = 0;
    let row = 0;
    for (let index = 0; index < spans.length; index++) {
      const { sequence, firstToken, endToken, numLogits } = spans[index];
      this.pastLengths[index] = firstToken;
      this.#writeTokenIds(spans[index], token);
      this.#writeBlocks(sequence.blockTable, index);
      if (this.#takesPositions) writePositions(sequence, firstToken, endToken, this.positions, token);
      token += endToken - firstToken;
      this.cumulativeLengths[index + 1] = token;
      const { samplingParams } = sequence;
      const scale = isGreedy(samplingParams) ? 1 : inverseTemperature(samplingParams);
      this.inverseTemperatures.fill(scale, row, row + numLogits);
      for (let logit = numLogits; logit > 0; logit--) this.logitRows[row++] = BigInt(token - logit);
    }
    if (row === 0) this.logitRows[0] = 0n;
    this.numLogits = Math.max(row, 1);
    this.#placeEmbeddings(spans);
  }

  /** One new sequence of `numTokens` tokens with id 0. All columns of its block table are the scratch block. */
  packScratch(numTokens: number, numColumns: number): void {
    this.numTokens = numTokens;
    this.numSequences = 1;
    this.numColumns = numColumns;
    this.numLogits = 1;
    this.maxSpanLength = numTokens;
    this.maxLength = numTokens;
    this.inputIds.fill(0n);
    this.cumulativeLengths.set([0, numTokens]);
    this.pastLengths[0] = 0;
    this.blockTable.fill(SCRATCH_BLOCK_ID);
    this.logitRows[0] = BigInt(numTokens - 1);
    this.imageRows.fill(TEXT_ROW);
    if (this.#takesPositions) this.positions = new BigInt64Array(3 * numTokens);
  }

  #measure(spans: readonly TokenSpan[], columnsFor: (numBlocks: number) => number): void {
    this.numSequences = spans.length;
    this.numTokens = 0;
    this.maxSpanLength = 0;
    this.maxLength = 0;
    let maxNumBlocks = 0;
    for (const { sequence, firstToken, endToken } of spans) {
      this.numTokens += endToken - firstToken;
      this.maxSpanLength = Math.max(this.maxSpanLength, endToken - firstToken);
      this.maxLength = Math.max(this.maxLength, endToken);
      maxNumBlocks = Math.max(maxNumBlocks, sequence.blockTable.length);
    }
    this.numColumns = columnsFor(maxNumBlocks);
  }

  /** A sequence that decodes has one token, its newest, so most spans take no copy. */
  #writeTokenIds({ sequence, firstToken, endToken }: TokenSpan, token: number): void {
    const { promptTokenIds, outputTokenIds } = sequence;
    const numPrompt = promptTokenIds.length;
    for (let place = firstToken; place < endToken; place++) {
      const tokenId = place < numPrompt ? promptTokenIds[place] : outputTokenIds[place - numPrompt];
      this.inputIds[token + place - firstToken] = BigInt(tokenId);
    }
  }

  #writeBlocks(blockTable: readonly number[], index: number): void {
    const start = index * this.numColumns;
    for (let column = 0; column < this.numColumns; column++) {
      this.blockTable[start + column] = column < blockTable.length ? blockTable[column] : -1;
    }
  }

  #placeEmbeddings(spans: readonly TokenSpan[]): void {
    this.imageRows.fill(TEXT_ROW, 0, this.numTokens);
    const numRows = spans.reduce((sum, { embeddings }) => sum + embeddings.positions.length, 0);
    if (numRows === 0) return;
    this.imagePool = new Float32Array(numRows * this.#hiddenSize);
    let poolRow = 0;
    let firstToken = 0;
    for (const span of spans) {
      this.imagePool.set(span.embeddings.embeddings, poolRow * this.#hiddenSize);
      for (const position of span.embeddings.positions)
        this.imageRows[firstToken + Number(position)] = BigInt(poolRow++);
      firstToken += span.endToken - span.firstToken;
    }
  }
}
