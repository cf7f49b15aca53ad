/** The gated perceptron of checkpoints in which gate and up projection are one matrix. */
import { quickGelu } from "../../graph/contrib-ops.ts";
import { multiply } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { chainedLinear, separate } from "../linear.ts";
import type { DecoderConfig } from "./config.ts";
import type { LayerNames } from "./layer-names.ts";

/** Like `decoderPerceptron` with SiLU. */
export function jointlyGatedPerceptron(
  context: GraphContext,
  { hiddenSize, intermediateSize }: DecoderConfig,
  { jointGates, perceptronOutput, hasUpFirst = false }: LayerNames,
  name: string,
  input: Value,
): Value {
  const { graph, precision } = context;
  const width = 2 * intermediateSize;
  const joint = { name: `${name}.${jointGates}`, inFeatures: hiddenSize, outFeatures: width, hasBias: false };
  const sizes = [intermediateSize, intermediateSize] as const;
  const down = {
    name: `${name}.${perceptronOutput}`,
    inFeatures: intermediateSize,
    outFeatures: hiddenSize,
    hasBias: false,
  };
  const chain = { first: [joint], second: down };
  return chainedLinear(context, joint.name, input, chain, precision.linear, (projected) => {
    const [first, second] = separate(graph, `${name}.gate_up`, projected, sizes);
    const [gate, up] = hasUpFirst ? [second, first] : [first, second];
    return multiply(graph, `${name}.gated`, quickGelu(graph, `${name}.silu`, gate, 1), up);
  });
}
