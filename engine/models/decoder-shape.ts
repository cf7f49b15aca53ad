/**
 * What follows from the shape of a decoder: its layers with keys and values, which may have different heads, the names of
 * these in its graph, and the columns of its outputs.
 */
import type { DecoderShape, KvHeads } from "./built-model.ts";
import { logitsOutput, type DecoderOutput } from "./decoder-output.ts";
import type { DecoderDimensions } from "./model-definition.ts";

type Layers = Pick<DecoderShape, "numLayers" | "numKvHeads" | "headDim" | "kvHeads">;

/** For each layer with keys and values. */
export function layersOf({ numLayers, numKvHeads, headDim, kvHeads }: Layers): readonly KvHeads[] {
  return kvHeads ?? Array.from({ length: numLayers }, () => ({ numKvHeads, headDim }));
}

/** Numbers of a token in the keys, or the values, of each layer. */
export function kvWidths(decoder: Layers): number[] {
  return layersOf(decoder).map(({ numKvHeads, headDim }) => numKvHeads * headDim);
}

/** Outputs that are bound to the memory of a layer's keys or values: its own and its readers'; see `DecoderGraph`. */
export function presentNames(
  { kvReaders = [] }: Pick<DecoderShape, "kvReaders">,
  layer: number,
  part: "key" | "value",
): string[] {
  const readers = kvReaders.flatMap((source, reader) => (source === layer ? [reader] : []));
  return [undefined, ...readers].map((reader) => presentName(layer, part, reader));
}

export function presentName(layer: number, part: "key" | "value", reader: number | undefined): string {
  return reader === undefined ? `present.${layer}.${part}` : `present.${layer}.${part}.${reader}`;
}

/** Columns of a decoder's `logits`. */
export function outputWidthOf({ outputWidth, vocabSize }: Pick<DecoderShape, "outputWidth" | "vocabSize">): number {
  return outputWidth ?? vocabSize;
}

/** The dimensions of a decoder with this output. Default: logits. */
export function withOutputWidth(
  dimensions: DecoderDimensions,
  output: DecoderOutput = logitsOutput,
): DecoderDimensions & Pick<DecoderShape, "outputWidth" | "returnsAllRows"> {
  switch (output.kind) {
    case "logits":
      return dimensions;
    case "states":
      return { ...dimensions, outputWidth: dimensions.hiddenSize };
    case "tokens":
      return { ...dimensions, outputWidth: output.projection.size, returnsAllRows: true };
    case "classes":
      return { ...dimensions, outputWidth: output.tokenIds?.length ?? 1 };
    default:
      return output satisfies never;
  }
}
