/** ONNX Runtime's operator for a mixture of gated experts. */
import { microsoftDomain, type AttributeValue, type GraphBuilder } from "./graph-builder.ts";
import { checkElementType, checkRank, checkShape } from "./node-checks.ts";
import type { Value } from "./value.ts";

export interface MixtureInputs {
  /** [N, hidden]. */
  readonly input: Value;
  /** [N, experts]. Experts with the largest softmax of them are chosen, and weighted by it. */
  readonly logits: Value;
  /** [experts, 2 * width, hidden]: rows of the gate and of the up projection by turns, a gate's first. */
  readonly gateUp: Value;
  /** [experts, hidden, width]. */
  readonly down: Value;
  /** Experts that compute a row. */
  readonly numActive: number;
  /** Whether weights are divided by their sum. */
  readonly normalises: boolean;
}

/**
 * [N, hidden]: sums of `down(silu(gate(x)) * up(x))` of each row's experts by their weights. N is at least 1.
 *
 * Gates and up projections take turns, because kernels do not agree on which half is first if each is in one piece: the
 * CPU's takes them by turns only, and CUDA's takes the second half as gates where the schema says the first.
 */
export function mixtureOfExperts(graph: GraphBuilder, name: string, inputs: MixtureInputs): Value {
  const { input, logits, gateUp, down, numActive, normalises } = inputs;
  const node = { name, operator: "MoE" };
  checkElementType(node, input, "float32", "float16");
  for (const value of [logits, gateUp, down]) checkElementType(node, value, input.elementType);
  checkRank(node, input, 2);
  checkRank(node, down, 3);
  const [numRows, hidden] = input.shape as readonly [string, number];
  const [numExperts, , width] = down.shape as readonly [number, number, number];
  checkShape(node, logits, [numRows, numExperts]);
  checkShape(node, gateUp, [numExperts, 2 * width, hidden]);
  checkShape(node, down, [numExperts, hidden, width]);
  return graph.addNode({
    ...node,
    domain: microsoftDomain,
    // Without biases.
    inputs: [input, logits, gateUp, null, down],
    attributes: {
      activation_type: { kind: "string", value: "swiglu" },
      swiglu_fusion: int(1),
      activation_alpha: { kind: "float", value: 1 },
      activation_beta: { kind: "float", value: 0 },
      k: int(numActive),
      normalize_routing_weights: int(normalises ? 1 : 0),
    },
    outputs: [{ name, elementType: input.elementType, shape: input.shape }],
  })[0];
}

function int(value: number): AttributeValue {
  return { kind: "int", value };
}
