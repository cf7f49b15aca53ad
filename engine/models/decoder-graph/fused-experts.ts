/** Experts that ONNX Runtime's own operator computes, which chooses them by itself and waits for nothing. */
import { invariant } from "../../contract/errors.ts";
import { mixtureOfExperts } from "../../graph/mixture-of-experts-op.ts";
import { sliceRows } from "../../graph/selection-ops.ts";
import { cast, concat, multiply } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext, PlainFormat } from "../graph-context.ts";
import type { ExpertsShape, MixtureInput } from "./experts.ts";
import { logitsOfChosen, type RouterOptions } from "./router.ts";

/** Like `routedExperts`, with weights in the given format. Inputs are cast to it, and outputs back. */
export function fusedExperts(
  context: GraphContext,
  { numExperts, numActive, intermediateSize, ...options }: ExpertsShape & RouterOptions,
  name: string,
  { input, logits, router, activation }: MixtureInput,
  format: PlainFormat,
): Value {
  invariant(activation === "silu", `${name} has SiLU, the gate of the operator`);
  invariant(options.factors === undefined, `${name} has no factors, which the operator does not take`);
  const { correction } = options;
  invariant(correction === undefined || options.normalises, `${name} normalises the weights that a router corrects`);
  const { graph, weights, precision, emptySizes } = context;
  const [numTokens, hiddenSize] = input.shape as readonly [string, number];
  const indices = [...Array(numExperts).keys()];
  const weight = (part: string, parts: readonly string[], [rows, columns]: readonly [number, number]): Value => {
    const own = `${name}.experts.all.${part}`;
    const prepared = weights.prepared({
      name: own,
      sources: indices.flatMap((index) => parts.map((of) => `${name}.experts.${index}.${of}.weight`)),
      shape: [numExperts * rows, columns],
      format,
      ...(parts.length === 2 && { alternatesPairs: true }),
    });
    return graph.externalTensor(own, prepared.weight, [numExperts, rows, columns]);
  };
  // Kernels take no run without rows.
  const canBeEmpty = emptySizes.has(numTokens);
  const taken = (part: string, value: Value): Value => {
    const own = cast(graph, `${name}.${part}.cast`, value, format.elementType);
    if (!canBeEmpty) return own;
    const width = Number(value.shape[1]);
    const zeros = graph.constant(`experts.no_row.${width}`, format.elementType, [1, width], Array(width).fill(0));
    return concat(graph, `${name}.${part}.and_one_more`, [own, zeros], 0, `${numTokens} + 1`);
  };
  const chosen = correction === undefined ? logits : logitsOfChosen(context, router, logits, numActive, correction);
  const all = mixtureOfExperts(graph, `${name}.mixture`, {
    input: taken("input", input),
    logits: taken("logits", chosen),
    gateUp: weight("gate_up_proj.weight", ["gate_proj", "up_proj"], [2 * intermediateSize, hiddenSize]),
    down: weight("down_proj.weight", ["down_proj"], [hiddenSize, intermediateSize]),
    numActive,
    normalises: options.normalises,
  });
  const rows = { start: 0, end: -1, size: numTokens };
  const own = canBeEmpty ? sliceRows(graph, `${name}.mixture.rows`, all, rows) : all;
  const mixed = cast(graph, `${name}.mixed`, own, precision.activations);
  const { factor = 1 } = options;
  if (factor === 1) return mixed;
  const scale = graph.constant(`experts.factor.${factor}`, precision.activations, [], [factor]);
  return multiply(graph, `${name}.scaled`, mixed, scale);
}
