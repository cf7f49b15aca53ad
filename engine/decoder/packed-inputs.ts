/** The inputs of a packed run: the tokens of all sequences, one after the other, and their places in the cache. */
import { isGreedy } from "../contract/sampling-params.ts";
import { SCRATCH_BLOCK_ID } from "../kv/block-pool.ts";
import { SCRATCH_STATE_PAIR, SCRATCH_STATE_ROW, ZERO_STATE_ROW } from "../kv/state-rows.ts";
import type { NewestRows } from "../kv/state-rows.ts";
import type { DecoderGraph } from "../models/built-model.ts";
import { inverseTemperature } from "../sampling/sampler.ts";
import type { FeaturePool } from "../vision/feature-pool.ts";
import type { TokenSpan } from "./decoder.ts";
import type { StepRegion, StepTensorLayout } from "./step-memory.ts";
import { writePositions } from "./token-positions.ts";

/** Sizes of a run; see `DecoderGraph`. */
export interface PackedShape {
  readonly numTokens: number;
  readonly numSequences: number;
  /** At least the number of blocks of the longest sequence. */
  readonly numColumns: number;
  /** At least 1, even if no logits are requested. */
  readonly numRows: number;
}

/** Row of a token that is not an image. */
const TEXT_ROW = -1n;

/** Adapter of a token whose request has none. */
const NO_ADAPTER = 0n;

const tensor = <const E extends StepTensorLayout["elementType"]>(elementType: E, shape: readonly number[]) => ({
  elementType,
  shape,
});

export type PackedLayouts = ReturnType<typeof packedLayouts>;

/** The inputs in step memory, by name. An input that the graph lacks stays unbound. */
export function packedLayouts({ numTokens, numSequences, numColumns, numRows }: PackedShape) {
  return {
    input_ids: tensor("int64", [numTokens]),
    cumulative_lengths: tensor("int32", [numSequences + 1]),
    past_lengths: tensor("int32", [numSequences]),
    block_table: tensor("int32", [numSequences, numColumns]),
    state_rows: tensor("int64", [numSequences]),
    new_state_rows: tensor("int64", [numSequences]),
    logit_rows: tensor("int64", [numRows]),
    inverse_temperature: tensor("float32", [numRows, 1]),
    adapter_ids: tensor("int64", [numTokens]),
    positions: tensor("int64", [3, numTokens]),
    image_rows: tensor("int64", [numTokens]),
  };
}

/** The smallest shape that the spans fit into. A block table may be longer: a rejected draft leaves blocks behind. */
export function shapeOfSpans(spans: readonly TokenSpan[], blockSize: number): PackedShape {
  let numTokens = 0;
  let numRows = 0;
  let maxLength = 1;
  for (const { firstToken, endToken, numLogits } of spans) {
    numTokens += endToken - firstToken;
    numRows += numLogits;
    maxLength = Math.max(maxLength, endToken);
  }
  const numColumns = Math.ceil(maxLength / blockSize);
  return { numTokens, numSequences: spans.length, numColumns, numRows: Math.max(numRows, 1) };
}

/**
 * Fills the inputs of a run with the spans, in their order. Sequences beyond the spans are padding: each computes one
 * token at the start of the scratch block.
 */
export function fillPackedInputs(
  { arrays }: StepRegion<PackedLayouts>,
  shape: PackedShape,
  spans: readonly TokenSpan[],
  { takesPositions }: Pick<DecoderGraph, "takesPositions">,
): void {
  let token = 0;
  let row = 0;
  arrays.cumulative_lengths[0] = 0;
  for (let index = 0; index < spans.length; index++) {
    const { sequence, firstToken, endToken, numLogits, numTokensBehind = 0 } = spans[index]!;
    arrays.past_lengths[index] = firstToken;
    writeTokenIds(arrays.input_ids, spans[index]!, token);
    writeBlocks(arrays.block_table, sequence.blockTable, index, shape.numColumns);
    if (takesPositions) writePositions(sequence, firstToken, endToken, arrays.positions, token);
    const firstRow = token;
    token += endToken - firstToken;
    arrays.adapter_ids.fill(BigInt(sequence.tokens.adapterId), firstRow, token);
    arrays.cumulative_lengths[index + 1] = token;
    const { samplingParams } = sequence;
    const scale = isGreedy(samplingParams) ? 1 : inverseTemperature(samplingParams);
    arrays.inverse_temperature.fill(scale, row, row + numLogits);
    const endRow = token - numTokensBehind;
    for (let logit = numLogits; logit > 0; logit--) arrays.logit_rows[row++] = BigInt(endRow - logit);
  }
  arrays.adapter_ids.fill(NO_ADAPTER, token);
  arrays.image_rows.fill(TEXT_ROW);
  arrays.inverse_temperature.fill(1, row);
  fillPadding(arrays, shape, spans.length, token);
  for (; row < shape.numRows; row++) arrays.logit_rows[row] = BigInt(Math.min(row, shape.numTokens - 1));
}

/**
 * Fills the rows of states that the run reads and writes. A sequence that begins reads zeros. Sequences beyond the spans
 * have the scratch pair.
 */
export function fillStateRows(
  { arrays }: StepRegion<PackedLayouts>,
  { numSequences }: PackedShape,
  spans: readonly TokenSpan[],
  newestRows: NewestRows,
): void {
  for (let index = 0; index < numSequences; index++) {
    const span = spans[index];
    const pair = span?.sequence.statePair ?? SCRATCH_STATE_PAIR;
    arrays.state_rows[index] = BigInt(span?.firstToken === 0 ? ZERO_STATE_ROW : newestRows.read(pair));
    arrays.new_state_rows[index] = BigInt(newestRows.written(pair));
  }
}

/**
 * Sequences that lie in the scratch block alone, for a run whose result is not used.
 *
 * @param lengths New tokens of each sequence.
 * @param firstPast Tokens of the first sequence before the run; the others have none.
 */
export function fillScratchInputs(
  { arrays }: StepRegion<PackedLayouts>,
  lengths: readonly number[],
  firstPast: number,
): void {
  arrays.input_ids.fill(0n);
  arrays.cumulative_lengths[0] = 0;
  lengths.forEach((length, index) => {
    arrays.cumulative_lengths[index + 1] = arrays.cumulative_lengths[index]! + length;
  });
  arrays.past_lengths.fill(0);
  arrays.past_lengths[0] = firstPast;
  arrays.block_table.fill(SCRATCH_BLOCK_ID);
  arrays.state_rows.fill(BigInt(ZERO_STATE_ROW));
  arrays.new_state_rows.fill(BigInt(SCRATCH_STATE_ROW));
  arrays.logit_rows.fill(0n);
  arrays.inverse_temperature.fill(1);
  arrays.adapter_ids.fill(NO_ADAPTER);
  arrays.positions.fill(0n);
  arrays.image_rows.fill(TEXT_ROW);
}

/** Fills `image_rows` with rows of the pool. Embeddings that are on the host are copied into the pool for this run. */
export function placeEmbeddings(
  { arrays }: StepRegion<PackedLayouts>,
  spans: readonly TokenSpan[],
  pool: FeaturePool,
): void {
  const numNumbers = spans.reduce((sum, { embeddings }) => sum + embeddings.embeddings.length, 0);
  const onHost = new Float32Array(numNumbers);
  let offset = 0;
  for (const { embeddings } of spans) {
    onHost.set(embeddings.embeddings, offset);
    offset += embeddings.embeddings.length;
  }
  let hostRow = BigInt(numNumbers === 0 ? 0 : pool.placeForRun(onHost));
  let firstToken = 0;
  for (const { embeddings, firstToken: start, endToken } of spans) {
    const { positions, poolRows } = embeddings;
    for (let index = 0; index < positions.length; index++) {
      const row = poolRows?.[index] ?? TEXT_ROW;
      arrays.image_rows[firstToken + Number(positions[index])] = row === TEXT_ROW ? hostRow++ : row;
    }
    firstToken += endToken - start;
  }
}

/** A loop rather than a copy of the lists: a sequence that decodes has one token. */
function writeTokenIds(target: BigInt64Array, span: TokenSpan, token: number): void {
  const { sequence, firstToken, endToken, draftTokenIds = [] } = span;
  const { promptTokenIds, outputTokenIds } = sequence;
  const numPrompt = promptTokenIds.length;
  const draftStart = endToken - draftTokenIds.length;
  draftTokenIds.forEach((tokenId, index) => (target[token + draftStart - firstToken + index] = BigInt(tokenId)));
  for (let place = firstToken; place < draftStart; place++) {
    const tokenId = place < numPrompt ? promptTokenIds[place] : outputTokenIds[place - numPrompt];
    target[token + place - firstToken] = BigInt(tokenId!);
  }
}

function writeBlocks(target: Int32Array, blockTable: readonly number[], index: number, numColumns: number): void {
  const start = index * numColumns;
  for (let column = 0; column < numColumns; column++) {
    target[start + column] = column < blockTable.length ? blockTable[column]! : -1;
  }
}

function fillPadding(
  arrays: StepRegion<PackedLayouts>["arrays"],
  { numSequences, numColumns }: PackedShape,
  numSpans: number,
  numTokens: number,
): void {
  for (let index = numSpans; index < numSequences; index++) {
    const token = numTokens + index - numSpans;
    arrays.input_ids[token] = 0n;
    arrays.past_lengths[index] = 0;
    arrays.cumulative_lengths[index + 1] = token + 1;
    arrays.block_table.fill(-1, index * numColumns, (index + 1) * numColumns);
    arrays.block_table[index * numColumns] = SCRATCH_BLOCK_ID;
    for (let axis = 0; axis < 3; axis++) arrays.positions[(axis * arrays.positions.length) / 3 + token] = 0n;
  }
}
