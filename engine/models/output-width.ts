/** Columns of a decoder's `logits`. */
import type { RunnerName } from "../contract/config.ts";
import type { DecoderShape } from "./built-model.ts";
import type { DecoderDimensions } from "./model-definition.ts";

export function outputWidthOf({ outputWidth, vocabSize }: Pick<DecoderShape, "outputWidth" | "vocabSize">): number {
  return outputWidth ?? vocabSize;
}

/** The dimensions of a decoder that computes logits or, for pooling, states. */
export function withOutputWidth(
  dimensions: DecoderDimensions,
  runner: RunnerName | undefined,
): DecoderDimensions & Pick<DecoderShape, "outputWidth"> {
  return runner === "pooling" ? { ...dimensions, outputWidth: dimensions.hiddenSize } : dimensions;
}
