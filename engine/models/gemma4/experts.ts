/** Experts of Gemma 4, which compute the residual stream beside the perceptron of a layer. */
import { simplifiedLayerNormalization } from "../../graph/contrib-ops.ts";
import { add, multiply } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { mixture } from "../decoder-graph/mixture.ts";
import { routerLogits } from "../decoder-graph/router.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { rmsNorm } from "../rms-norm.ts";
import type { Gemma4TextConfig } from "./text-config.ts";

/**
 * The sum of what perceptron and experts add to the residual stream, [N, hiddenSize] each, both normalised; the output
 * of the perceptron alone for a model without experts.
 *
 * @param layer.output Of the perceptron.
 * @param layer.residual The stream before it.
 */
export function withExperts(
  context: GraphContext,
  { hiddenSize, rmsNormEpsilon: epsilon, activation, experts }: Gemma4TextConfig,
  name: string,
  { output, residual }: { readonly output: Value; readonly residual: Value },
): Value {
  if (experts === null) return output;
  const { graph, precision } = context;
  const norm = (part: string, input: Value): Value =>
    rmsNorm(context, `${name}.${part}`, input, { size: hiddenSize, epsilon });
  const router = `${name}.router`;
  const weight = parameter(context, `${router}.scale`, [hiddenSize]);
  const routed = simplifiedLayerNormalization(graph, `${router}.norm`, { input: residual, weight, epsilon });
  const factor = graph.constant(`factor.${hiddenSize}^-0.5`, precision.activations, [], [hiddenSize ** -0.5]);
  const scores = routerLogits(context, `${router}.proj`, routed, experts.numExperts);
  const logits = multiply(graph, `${router}.logits`, scores, factor);
  const factors = parameter(context, `${router}.per_expert_scale`, [experts.numExperts]);
  const input = norm("pre_feedforward_layernorm_2", residual);
  const shape = { ...experts, normalises: true, factors };
  const chosen = mixture(context, shape, name, { input, logits, router, activation });
  const own = norm("post_feedforward_layernorm_1", output);
  return add(graph, `${name}.with_experts`, own, norm("post_feedforward_layernorm_2", chosen));
}
