/** A check for models whose activations exceed the range of float16. */
import { EngineError } from "../../contract/errors.ts";
import type { GraphContext } from "../graph-context.ts";

/** @throws EngineError `invalid_configuration` for float16, in which the activations of some models overflow. */
export function requireFloatRange({ precision }: GraphContext, modelName: string): void {
  if (precision.activations !== "float16") return;
  throw new EngineError(
    "invalid_configuration",
    `The activations of ${modelName} exceed the range of float16; choose the dtype float32, or bfloat16 on cuda.`,
    { setting: "dtype" },
  );
}
