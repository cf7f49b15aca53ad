/** The linear attention of Qwen3.5: a gated delta network (arXiv:2412.06464) over a convolution of its inputs. */
import { exponential } from "../../graph/candidate-ops.ts";
import { quickGelu, simplifiedLayerNormalization } from "../../graph/contrib-ops.ts";
import { sigmoid, softplus } from "../../graph/recurrent-ops.ts";
import { add, cast, multiply, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { DecoderInputs } from "../decoder-graph/decoder-inputs.ts";
import { joinHeads, splitHeads } from "../decoder-graph/head-rows.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { jointLinear, linear, separate } from "../linear.ts";
import { numChannels, type Qwen35TextConfig } from "./config.ts";

/** Added to the square of a query's or key's length. */
const LENGTH_EPSILON = 1e-6;

/** [N, numValueHeads * valueDim], before the output projection. */
export function gatedDeltaNet(
  context: GraphContext,
  { linear: config, hiddenSize, rmsNormEpsilon }: Qwen35TextConfig,
  { name, layer, input }: { readonly name: string; readonly layer: number; readonly input: Value },
  inputs: DecoderInputs,
): Value {
  const { graph, precision } = context;
  const { numKeyHeads, numValueHeads, keyDim, valueDim, kernelSize } = config;
  const channels = numChannels(config);
  const valueWidth = numValueHeads * valueDim;
  const projection = (part: string, outFeatures: number) => ({
    name: `${name}.in_proj_${part}`,
    inFeatures: hiddenSize,
    outFeatures,
    hasBias: false,
  });
  const projected = jointLinear(
    context,
    `${name}.in_proj`,
    input,
    [projection("qkv", channels), projection("z", valueWidth)],
    precision.linear,
  );
  const [mixed, gate] = separate(graph, `${name}.in_proj`, projected, [channels, valueWidth]);
  const convolved = inputs.convolve({
    name: `${name}.conv1d`,
    layer,
    input: mixed,
    kernel: parameter(context, `${name}.conv1d.weight`, [channels, 1, kernelSize]),
    bias: null,
    activation: "silu",
  });
  const keyWidth = numKeyHeads * keyDim;
  const sizes = [keyWidth, keyWidth, valueWidth] as const;
  const [query, key, value] = split(graph, `${name}.qkv`, convolved, { axis: 1, sizes });
  const output = inputs.recur({
    name: `${name}.delta`,
    layer,
    // The query carries the scale of the products.
    query: unitLength(context, `${name}.query`, query, { keyDim, factor: keyDim ** -0.5 }),
    key: unitLength(context, `${name}.key`, key, { keyDim, factor: 1 }),
    value: cast(graph, `${name}.value`, value, "float32"),
    ...gates(context, name, input, { hiddenSize, numValueHeads }),
    numKeyHeads,
    numValueHeads,
    keyDim,
    valueDim,
  });
  return gatedNorm(context, `${name}.norm`, { output, gate, valueDim, epsilon: rmsNormEpsilon });
}

/**
 * Each head of [N, heads * keyDim] scaled to length `factor`, in float32: `factor * x / sqrt(sum(x^2) + epsilon)`. An
 * RMS norm divides by the root of the mean instead of the sum.
 */
function unitLength(
  { graph }: GraphContext,
  name: string,
  rows: Value,
  { keyDim, factor }: { readonly keyDim: number; readonly factor: number },
): Value {
  const heads = splitHeads(graph, `${name}.heads`, cast(graph, `${name}.wide`, rows, "float32"), keyDim);
  const scale = factor * keyDim ** -0.5;
  const weight = graph.constant(
    `unit_length.${keyDim}.${factor}`,
    "float32",
    [keyDim],
    Array.from({ length: keyDim }, () => scale),
  );
  const epsilon = LENGTH_EPSILON / keyDim;
  const normalised = simplifiedLayerNormalization(graph, `${name}.unit`, { input: heads, weight, epsilon });
  return joinHeads(graph, `${name}.rows`, normalised, Number(rows.shape[1]));
}

/**
 * `decay = -exp(A_log) * softplus(a + dt_bias)` and `beta = sigmoid(b)`, float32 [N, numValueHeads] each. Their
 * projections are small and stay exact: an error of the decay grows with the number of tokens.
 */
function gates(
  context: GraphContext,
  name: string,
  input: Value,
  { hiddenSize, numValueHeads }: { readonly hiddenSize: number; readonly numValueHeads: number },
): { readonly decay: Value; readonly beta: Value } {
  const { graph, precision } = context;
  const projected = (part: "a" | "b"): Value => {
    const layer = {
      name: `${name}.in_proj_${part}`,
      inFeatures: hiddenSize,
      outFeatures: numValueHeads,
      hasBias: false,
    };
    const format = { kind: "plain", elementType: precision.activations } as const;
    return cast(graph, `${name}.${part}`, linear(context, input, layer, format), "float32");
  };
  const perHead = (part: string): Value => {
    const stored = parameter(context, `${name}.${part}`, [numValueHeads]);
    return cast(graph, `${name}.${part}.wide`, stored, "float32");
  };
  const minusOne = graph.constant("float32.minus_one", "float32", [1], [-1]);
  const rate = multiply(graph, `${name}.rate`, exponential(graph, `${name}.A`, perHead("A_log")), minusOne);
  const step = softplus(graph, `${name}.step`, add(graph, `${name}.dt`, projected("a"), perHead("dt_bias")));
  return {
    decay: multiply(graph, `${name}.decay`, step, rate),
    beta: sigmoid(graph, `${name}.beta`, projected("b")),
  };
}

/** The RMS norm of each head, times `silu(gate)`: [N, numValueHeads * valueDim]. */
function gatedNorm(
  context: GraphContext,
  name: string,
  {
    output,
    gate,
    valueDim,
    epsilon,
  }: { readonly output: Value; readonly gate: Value; readonly valueDim: number; readonly epsilon: number },
): Value {
  const { graph, precision } = context;
  const heads = splitHeads(
    graph,
    `${name}.heads`,
    cast(graph, `${name}.input`, output, precision.activations),
    valueDim,
  );
  const weight = parameter(context, `${name}.weight`, [valueDim]);
  const normalised = simplifiedLayerNormalization(graph, name, { input: heads, weight, epsilon });
  const rows = joinHeads(graph, `${name}.rows`, normalised, Number(gate.shape[1]));
  return multiply(graph, `${name}.gated`, rows, quickGelu(graph, `${name}.gate`, gate, 1));
}
