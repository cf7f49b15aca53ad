/**
 * Causal attention of a prompt's chunk, in pieces.
 *
 * ONNX Runtime's kernel for CPUs multiplies every query of a run by every key, and only then drops the products with later
 * keys. Each of four pieces meets the keys up to its own end. That leaves five eighths of the products if the sequence has
 * no earlier tokens. The results stay the same to the last bit, because the dropped products count as 0 anyway.
 */
import { groupQueryAttention, type GroupQueryAttentionInputs } from "../../graph/contrib-ops.ts";
import { choose } from "../../graph/control-flow-ops.ts";
import { and, less } from "../../graph/selection-ops.ts";
import { int64Scalar, int64Vector } from "../../graph/shape-ops.ts";
import { cast, concat, divide, gatherRows, multiply, split, splitAt, subtract } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import type { SlotValues } from "./slot-projections.ts";

const NUM_PIECES = 4;
/** A shorter chunk gains less than its pieces' nodes cost. */
const MIN_TOKENS = 128;

const indices = Array.from({ length: NUM_PIECES }, (_, index) => index);

export interface ChunkPieces {
  /** The name of S, the tokens of the run. */
  readonly length: string;
  /** bool []: whether attention has pieces. Only in a run of one sequence: several take no earlier tokens in one node. */
  readonly condition: Value;
  /** int64 [NUM_PIECES]: tokens of each piece. */
  readonly sizes: Value;
  /** int32 [1] for each piece: tokens of the sequence up to its end, and the same minus one. */
  readonly totalLengths: readonly Value[];
  readonly seqlensK: readonly Value[];
}

/** @param numTokens int64 []: of each sequence in the run. */
export function chunkPieces(
  { graph }: Pick<GraphContext, "graph">,
  {
    inputShape,
    totalSequenceLength,
    prefix,
    sizes,
  }: Pick<SlotValues, "inputShape" | "totalSequenceLength" | "prefix" | "sizes">,
  numTokens: Value,
): ChunkPieces {
  const named = (part: string): string => `${prefix}pieces.${part}`;
  const boundaries = (part: string, numerators: readonly number[]): Value => {
    const multiples = multiply(graph, named(`${part}.multiples`), numTokens, int64Vector(graph, ...numerators));
    return divide(graph, named(part), multiples, int64Scalar(graph, NUM_PIECES));
  };
  const starts = boundaries("starts", indices);
  const ends = boundaries(
    "ends",
    indices.map((index) => index + 1),
  );
  const behind = cast(graph, named("behind"), subtract(graph, named("behind.int64"), numTokens, ends), "int32");
  const lengths = subtract(graph, named("total_lengths"), totalSequenceLength, behind);
  const one = graph.constant("pieces.one", "int32", [], [1]);
  const ofPieces = (part: string, vector: Value): readonly Value[] =>
    split(graph, named(part), vector, { axis: 0, sizes: indices.map(() => 1) });
  const numSequences = gatherRows(graph, named("batch"), inputShape, int64Scalar(graph, 0));
  const isAlone = less(graph, named("is_alone"), numSequences, int64Scalar(graph, 2));
  const isLong = less(graph, named("is_long"), int64Scalar(graph, MIN_TOKENS - 1), numTokens);
  return {
    length: sizes.length,
    condition: and(graph, named("condition"), isAlone, isLong),
    sizes: subtract(graph, named("sizes"), ends, starts),
    totalLengths: ofPieces("total_length", lengths),
    seqlensK: ofPieces("seqlens_k", subtract(graph, named("last_positions"), lengths, one)),
  };
}

/**
 * [B, S, numHeads * headDim]: the output of `groupQueryAttention`.
 *
 * @param inputs The past has exactly the tokens before the run, and is a slice: ONNX Runtime gives the present the name of
 * the past's size, and would take the presents of all pieces for equally large.
 */
export function attendToChunkInPieces(
  { graph }: Pick<GraphContext, "graph">,
  name: string,
  inputs: GroupQueryAttentionInputs & { readonly key: Value; readonly value: Value },
  pieces: ChunkPieces,
): Value {
  const { query, key, value } = inputs;
  const inPieces = (): Value => {
    const cut = (part: string, input: Value): readonly Value[] => {
      const dimensions = indices.map((index) => `piece.${index}`);
      return splitAt(graph, `${name}.${part}.pieces`, input, { axis: 1, sizes: pieces.sizes, dimensions });
    };
    const [queries, keys, values] = [cut("query", query), cut("key", key), cut("value", value)];
    let past = { key: inputs.pastKey, value: inputs.pastValue };
    const outputs = indices.map((index) => {
      const attended = groupQueryAttention(graph, `${name}.piece.${index}`, {
        ...inputs,
        query: queries[index]!,
        key: keys[index]!,
        value: values[index]!,
        pastKey: past.key,
        pastValue: past.value,
        // No name of `sizes.ts`: estimates of memory count the whole, whose scores take more.
        presentLength: `piece.${index}.present`,
        seqlensK: pieces.seqlensK[index]!,
        totalSequenceLength: pieces.totalLengths[index]!,
        presentKeyName: `${name}.piece.${index}.key`,
        presentValueName: `${name}.piece.${index}.value`,
      });
      past = { key: attended.presentKey, value: attended.presentValue };
      return attended.output;
    });
    return concat(graph, `${name}.of_pieces`, outputs, 1, pieces.length);
  };
  const [output] = choose(graph, `${name}.form`, {
    names: [name] as const,
    condition: pieces.condition,
    chosen: () => [inPieces()],
    other: () => [groupQueryAttention(graph, `${name}.whole`, inputs).output],
  });
  return output;
}
