/** Gated perceptrons of decoders whose activation is in the configuration. */
import { multiply } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { applyActivation, type ActivationName } from "../activation.ts";
import type { GraphContext } from "../graph-context.ts";
import { jointLinear, linear, separate } from "../linear.ts";

export interface GatedPerceptronShape {
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly activation: ActivationName;
}

/** `down(activation(gate(input)) * up(input))`: [N, hiddenSize]. */
export function gatedPerceptron(
  context: GraphContext,
  { hiddenSize, intermediateSize, activation }: GatedPerceptronShape,
  name: string,
  input: Value,
): Value {
  const { graph, precision } = context;
  const layers = ["gate_proj", "up_proj"].map((part) => ({
    name: `${name}.${part}`,
    inFeatures: hiddenSize,
    outFeatures: intermediateSize,
    hasBias: false,
  }));
  const projected = jointLinear(context, `${name}.gate_up`, input, layers, precision.linear);
  const [gate, up] = separate(graph, `${name}.gate_up`, projected, [intermediateSize, intermediateSize] as const);
  const gated = multiply(graph, `${name}.gated`, applyActivation(graph, `${name}.act`, gate, activation), up);
  const down = { name: `${name}.down_proj`, inFeatures: intermediateSize, outFeatures: hiddenSize, hasBias: false };
  return linear(context, gated, down, precision.linear);
}
