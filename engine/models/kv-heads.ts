/** The layers of a decoder that have keys and values, which may have different heads, and their names in its graph. */
import type { DecoderShape, KvHeads } from "./built-model.ts";

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
