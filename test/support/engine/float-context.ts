/** A context for small graphs of float32 on the CPU, without weights. */
import { createGraphContext, type GraphContext } from "../../../engine/models/graph-context.ts";
import { imaginedWeights } from "../../../engine/models/weight-source.ts";

const float32 = { kind: "plain", elementType: "float32" } as const;

export function createFloatContext(name: string): GraphContext {
  return createGraphContext(name, {
    weights: imaginedWeights,
    precision: { activations: "float32", linear: float32, head: float32, vision: float32 },
    device: "cpu",
    kvLayout: { kind: "slots" },
  });
}
