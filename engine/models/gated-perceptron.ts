/** Gated perceptrons of decoders and vision towers. */
import { multiply } from "../graph/standard-ops.ts";
import type { Value } from "../graph/value.ts";
import type { WeightFormat } from "../weights/prepared-weights.ts";
import { applyActivation, type ActivationName } from "./activation.ts";
import type { GraphContext } from "./graph-context.ts";
import { chainedLinear, separate } from "./linear.ts";

export interface GatedPerceptronShape {
  /** Features of inputs and outputs. */
  readonly size: number;
  readonly intermediateSize: number;
  readonly hasBias: boolean;
  readonly activation: ActivationName;
  /** See `linear`. */
  readonly format: WeightFormat;
  /** Of the checkpoint's tensors below the perceptron's own. Default: `gate_proj`, `up_proj` and `down_proj`. */
  readonly names?: PerceptronNames;
}

export interface PerceptronNames {
  readonly gate: string;
  readonly up: string;
  readonly down: string;
}

const usualNames: PerceptronNames = { gate: "gate_proj", up: "up_proj", down: "down_proj" };

/**
 * `down(activation(gate(input)) * up(input))`, [rows, size] to [rows, size].
 *
 * @param name Prefix of the checkpoint's tensors.
 */
export function gatedPerceptron(
  context: GraphContext,
  name: string,
  input: Value,
  { size, intermediateSize, hasBias, activation, format, names = usualNames }: GatedPerceptronShape,
): Value {
  const { graph } = context;
  const layers = [names.gate, names.up].map((part) => ({
    name: `${name}.${part}`,
    inFeatures: size,
    outFeatures: intermediateSize,
    hasBias,
  }));
  const down = { name: `${name}.${names.down}`, inFeatures: intermediateSize, outFeatures: size, hasBias };
  return chainedLinear(context, `${name}.gate_up`, input, { first: layers, second: down }, format, (joint) => {
    const [gate, up] = separate(graph, `${name}.gate_up`, joint, [intermediateSize, intermediateSize] as const);
    return multiply(graph, `${name}.gated`, applyActivation(graph, `${name}.activation`, gate, activation), up);
  });
}
