/**
 * ONNX Runtime's operators for layers with a recurrent state (convolutions and gated delta networks), and the functions of
 * their gates.
 */
import { microsoftDomain, type AttributeValue, type GraphBuilder } from "./graph-builder.ts";
import { checkElementType, checkRank, checkShape, floats, knownSize, nodeError } from "./node-checks.ts";
import { addStandardNode } from "./standard-ops.ts";
import type { Shape, Value } from "./value.ts";

const int = (value: number): AttributeValue => ({ kind: "int", value });

export function sigmoid(graph: GraphBuilder, name: string, input: Value): Value {
  checkElementType({ name, operator: "Sigmoid" }, input, ...floats);
  return addStandardNode(graph, { name, operator: "Sigmoid" }, [input], input);
}

/** `log(1 + exp(input))`. */
export function softplus(graph: GraphBuilder, name: string, input: Value): Value {
  checkElementType({ name, operator: "Softplus" }, input, ...floats);
  return addStandardNode(graph, { name, operator: "Softplus" }, [input], input);
}

export type ConvolutionActivation = "silu" | "none";

export interface ConvolutionInputs {
  readonly input: Value;
  /** [channels, 1, kernelSize]. */
  readonly kernel: Value;
  /** [channels]; null: none. */
  readonly bias: Value | null;
  readonly past: Value;
  readonly activation: ConvolutionActivation;
}

interface ConvolutionSizes {
  readonly channels: number;
  readonly kernelSize: number;
}

/** The sizes of a convolution over inputs with `rank` axes, of which channels are the last. Throws for wrong ones. */
function convolutionSizes(
  node: { readonly name: string; readonly operator: string },
  { input, kernel, bias, past }: ConvolutionInputs,
  rank: number,
): ConvolutionSizes {
  checkElementType(node, input, ...floats);
  checkRank(node, input, rank);
  checkRank(node, kernel, 3);
  for (const other of [kernel, past]) checkElementType(node, other, input.elementType);
  const channels = knownSize(node, input, rank - 1);
  const kernelSize = knownSize(node, kernel, 2);
  checkShape(node, kernel, [channels, 1, kernelSize]);
  if (bias !== null) {
    checkElementType(node, bias, input.elementType);
    checkShape(node, bias, [channels]);
  }
  return { channels, kernelSize };
}

/**
 * A causal convolution over the tokens of each sequence, channel by channel, and its activation.
 *
 * @param inputs.input [B, S, channels].
 * @param inputs.past [B, kernelSize - 1, channels]: the inputs of the last tokens before the run.
 * @returns `output` like `input`, and `present` like `past`, after the run.
 */
export function causalConvolution(
  graph: GraphBuilder,
  name: string,
  inputs: ConvolutionInputs,
): { readonly output: Value; readonly present: Value } {
  const node = { name, operator: "CausalConvWithState" };
  const { channels, kernelSize } = convolutionSizes(node, inputs, 3);
  const { input, kernel, bias, past, activation } = inputs;
  checkShape(node, past, [input.shape[0]!, kernelSize - 1, channels]);
  const { elementType } = input;
  const [output, present] = graph.addNode({
    ...node,
    domain: microsoftDomain,
    inputs: [input, kernel, bias, past],
    attributes: { ndim: int(1), channels_last: int(1), activation: { kind: "string", value: activation } },
    outputs: [
      { name, elementType, shape: input.shape },
      { name: `${name}.present`, elementType, shape: past.shape },
    ],
  });
  return { output, present };
}

export interface DeltaRuleInputs {
  /** float32 [B, S, numKeyHeads * keyDim], scaled and normalised. */
  readonly query: Value;
  /** Like `query`. */
  readonly key: Value;
  /** float32 [B, S, numValueHeads * valueDim]. */
  readonly value: Value;
  /** float32 [B, S, numValueHeads]: logarithms of the shares of the state that a token keeps. */
  readonly decay: Value;
  /** float32 [B, S, numValueHeads]: how far a token moves the state towards its value. */
  readonly beta: Value;
  /** float32 [B, numValueHeads, keyDim, valueDim]. */
  readonly past: Value;
  readonly numKeyHeads: number;
  readonly presentName: string;
}

/**
 * The gated delta rule, for each value head: `S = exp(decay) * S; S = S + beta * key * (value - S^T key); output = S^T
 * query` (Gated Delta Networks, arXiv:2412.06464). Consecutive value heads share a key head.
 *
 * @returns `output` float32 [B, S, numValueHeads * valueDim], and `present` like `past`.
 */
export function gatedDeltaRule(
  graph: GraphBuilder,
  name: string,
  { query, key, value, decay, beta, past, numKeyHeads, presentName }: DeltaRuleInputs,
): { readonly output: Value; readonly present: Value } {
  const node = { name, operator: "LinearAttention" };
  for (const input of [query, key, value, decay, beta, past]) checkElementType(node, input, "float32");
  checkRank(node, query, 3);
  const [batch, length] = query.shape as Shape & readonly [Shape[number], Shape[number]];
  checkShape(node, key, query.shape);
  const numValueHeads = knownSize(node, past, 1);
  const [keyDim, valueDim] = [knownSize(node, past, 2), knownSize(node, past, 3)];
  checkShape(node, query, [batch, length, numKeyHeads * keyDim]);
  checkShape(node, value, [batch, length, numValueHeads * valueDim]);
  for (const gate of [decay, beta]) checkShape(node, gate, [batch, length, numValueHeads]);
  checkShape(node, past, [batch, numValueHeads, keyDim, valueDim]);
  if (numValueHeads % numKeyHeads !== 0) {
    throw nodeError(node, `${numValueHeads} value heads do not divide into ${numKeyHeads} groups.`);
  }
  const [output, present] = graph.addNode({
    ...node,
    domain: microsoftDomain,
    inputs: [query, key, value, past, decay, beta],
    attributes: {
      q_num_heads: int(numKeyHeads),
      kv_num_heads: int(numValueHeads),
      update_rule: { kind: "string", value: "gated_delta" },
      scale: { kind: "float", value: 1 },
    },
    outputs: [
      { name, elementType: "float32", shape: value.shape },
      { name: presentName, elementType: "float32", shape: past.shape },
    ],
  });
  return { output, present };
}

/**
 * `causalConvolution` over the packed tokens of several sequences, on CUDA only. Every sequence has at least one token.
 *
 * @param inputs.input [N, channels], one sequence after the other.
 * @param inputs.cumulativeLengths int32 [B + 1]: the index of each sequence's first token among the N; then N.
 * @param inputs.past [B, channels, kernelSize - 1]: the inputs of the last tokens before the run.
 * @returns `output` like `input`, and `present` like `past`, after the run.
 */
export function packedCausalConvolution(
  graph: GraphBuilder,
  name: string,
  { cumulativeLengths, ...inputs }: ConvolutionInputs & { readonly cumulativeLengths: Value },
): { readonly output: Value; readonly present: Value } {
  const node = { name, operator: "VarlenCausalConvWithState" };
  checkElementType(node, cumulativeLengths, "int32");
  const { channels, kernelSize } = convolutionSizes(node, inputs, 2);
  const { input, kernel, bias, past, activation } = inputs;
  checkRank(node, past, 3);
  checkShape(node, past, [past.shape[0]!, channels, kernelSize - 1]);
  const { elementType } = input;
  const [output, present] = graph.addNode({
    ...node,
    domain: microsoftDomain,
    inputs: [input, kernel, cumulativeLengths, bias, past],
    attributes: { activation: { kind: "string", value: activation } },
    outputs: [
      { name, elementType, shape: input.shape },
      { name: `${name}.present`, elementType, shape: past.shape },
    ],
  });
  return { output, present };
}

export interface PackedDeltaRuleInputs {
  /** float32 [N, numKeyHeads, keyDim], scaled and normalised. */
  readonly query: Value;
  /** Like `query`. */
  readonly key: Value;
  /** float32 [N, numValueHeads, valueDim]. */
  readonly value: Value;
  /** float32 [N, numValueHeads]; see `DeltaRuleInputs`. */
  readonly decay: Value;
  readonly beta: Value;
  /** int32 [B + 1]: the index of each sequence's first token among the N; then N. */
  readonly cumulativeLengths: Value;
  /** float32 [B, numValueHeads, valueDim, keyDim]: the matrices of `gatedDeltaRule` transposed. */
  readonly past: Value;
  readonly presentName: string;
}

/**
 * `gatedDeltaRule` over the packed tokens of several sequences, on CUDA only.
 *
 * @returns `output` float32 [N, numValueHeads, valueDim], and `present` like `past`.
 */
export function packedGatedDeltaRule(
  graph: GraphBuilder,
  name: string,
  { query, key, value, decay, beta, cumulativeLengths, past, presentName }: PackedDeltaRuleInputs,
): { readonly output: Value; readonly present: Value } {
  const node = { name, operator: "GatedDeltaNet" };
  for (const input of [query, key, value, decay, beta, past]) checkElementType(node, input, "float32");
  checkElementType(node, cumulativeLengths, "int32");
  for (const input of [query, value]) checkRank(node, input, 3);
  const [length] = query.shape as Shape & readonly [Shape[number]];
  checkShape(node, key, query.shape);
  const [numKeyHeads, keyDim] = [knownSize(node, query, 1), knownSize(node, query, 2)];
  const [numValueHeads, valueDim] = [knownSize(node, value, 1), knownSize(node, value, 2)];
  for (const gate of [decay, beta]) checkShape(node, gate, [length, numValueHeads]);
  checkShape(node, past, [past.shape[0]!, numValueHeads, valueDim, keyDim]);
  if (numValueHeads % numKeyHeads !== 0) {
    throw nodeError(node, `${numValueHeads} value heads do not divide into ${numKeyHeads} groups.`);
  }
  const [output, present] = graph.addNode({
    ...node,
    domain: microsoftDomain,
    inputs: [query, key, value, cumulativeLengths, decay, beta, past],
    attributes: {
      update_rule: { kind: "string", value: "gated_delta" },
      scale: { kind: "float", value: 1 },
    },
    outputs: [
      { name, elementType: "float32", shape: value.shape },
      { name: presentName, elementType: "float32", shape: past.shape },
    ],
  });
  return { output, present };
}
