/** The gated perceptron of a decoder's layer. */
import type { Value } from "../../graph/value.ts";
import type { ActivationName } from "../activation.ts";
import { gatedPerceptron } from "../gated-perceptron.ts";
import type { GraphContext } from "../graph-context.ts";

export interface DecoderPerceptronShape {
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly activation: ActivationName;
  /** Default false. */
  readonly hasMlpBias?: boolean;
}

/** `down(activation(gate(input)) * up(input))`: [N, hiddenSize]. */
export function decoderPerceptron(
  context: GraphContext,
  { hiddenSize, intermediateSize, activation, hasMlpBias = false }: DecoderPerceptronShape,
  name: string,
  input: Value,
): Value {
  const { linear: format } = context.precision;
  const shape = { size: hiddenSize, intermediateSize, hasBias: hasMlpBias, activation, format };
  return gatedPerceptron(context, name, input, shape);
}
