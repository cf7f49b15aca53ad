/** Activation functions of multi-layer perceptrons, by transformers' names (`ACT2FN`). */
import { z } from "zod";

import { quickGelu } from "../graph/contrib-ops.ts";
import type { GraphBuilder } from "../graph/graph-builder.ts";
import { gelu, multiply, relu } from "../graph/standard-ops.ts";
import type { Value } from "../graph/value.ts";
import { unsupportedField } from "./config-field.ts";

const activationNames = [
  "gelu",
  "gelu_new",
  "gelu_pytorch_tanh",
  "quick_gelu",
  "relu",
  "relu2",
  "silu",
  "swish",
] as const;
const activationName = z.enum(activationNames);
export type ActivationName = z.output<typeof activationName>;

export function parseActivation(path: string, field: string, value: unknown): ActivationName {
  const result = activationName.safeParse(value);
  if (!result.success) throw unsupportedField(path, field, value, `supported are ${activationNames.join(", ")}`);
  return result.data;
}

export function applyActivation(graph: GraphBuilder, name: string, input: Value, activation: ActivationName): Value {
  switch (activation) {
    case "gelu":
      return gelu(graph, name, input, "none");
    case "gelu_new":
    case "gelu_pytorch_tanh":
      return gelu(graph, name, input, "tanh");
    case "quick_gelu":
      return quickGelu(graph, name, input, 1.702);
    case "relu":
      return relu(graph, name, input);
    case "relu2": {
      const positive = relu(graph, `${name}.relu`, input);
      return multiply(graph, name, positive, positive);
    }
    case "silu":
    case "swish":
      return quickGelu(graph, name, input, 1);
  }
  return activation satisfies never;
}
