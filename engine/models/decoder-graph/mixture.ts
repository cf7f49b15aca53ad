/** Mixtures of experts in the form that the device computes. */
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { routedExperts, type ExpertsShape, type MixtureInput } from "./experts.ts";
import { fusedExperts } from "./fused-experts.ts";
import { route, type RouterOptions } from "./router.ts";

/** What the experts of a layer, called `{name}.experts`, add up to by the router's weights: [N, hiddenSize]. */
export function mixture(
  context: GraphContext,
  experts: ExpertsShape & RouterOptions,
  name: string,
  from: MixtureInput,
): Value {
  const { experts: fused } = context.precision;
  if (fused !== undefined) return fusedExperts(context, experts, name, from, fused);
  const { input, logits, router, activation } = from;
  const routes = route(context, router, logits, experts.numActive, experts);
  return routedExperts(context, experts, name, input, { routes, activation });
}
