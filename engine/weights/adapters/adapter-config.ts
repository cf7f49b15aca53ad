/** Reads a LoRA adapter's `adapter_config.json` in PEFT's form. */
import { z } from "zod";

import type { EngineError } from "../../contract/errors.ts";
import { excerpt } from "../../excerpt.ts";
import { describeProblem, readBySchema } from "../../schema-problem.ts";
import { adapterConfigName } from "../checkpoint-files.ts";
import { invalidAdapter, type AdapterOrigin } from "./adapter-origin.ts";

/** Factors of the updates of an adapter's modules. */
export interface AdapterConfig {
  /**
   * Factor of the product of a module's two matrices.
   *
   * @param module Without the prefix `base_model.model.`
   */
  scaleOf(this: void, module: string, rank: number): number;
}

/** Ways to begin a training that leave the weights of the base model as they are. */
const plainInitialisations = [true, false, "gaussian", "eva", "orthogonal"];

/** Fields that change the computation, each with the values that say that it is off. */
const offValues: Readonly<Record<string, readonly unknown[]>> = {
  fan_in_fan_out: [false],
  lora_bias: [false],
  use_qalora: [false],
  init_lora_weights: plainInitialisations,
  layer_replication: [],
  target_parameters: [],
  trainable_token_indices: [],
  alora_invocation_tokens: [],
  use_bdlora: [],
  arrow_config: [],
  kasa_config: [],
  monteclora_config: [],
};

const fields = z.looseObject({
  peft_type: z.string(),
  lora_alpha: z.number().default(8),
  use_rslora: z.boolean().nullish(),
  alpha_pattern: z.record(z.string(), z.number()).nullish(),
});

/** @throws EngineError `invalid_checkpoint` for fields that are missing or wrong, and for what cannot be merged. */
export function parseAdapterConfig(json: unknown, origin: AdapterOrigin): AdapterConfig {
  const result = readBySchema(fields, json);
  if (!result.isValid) throw invalid(origin, describeProblem(result));
  const { peft_type: type, lora_alpha: alpha, use_rslora: usesRoot, alpha_pattern } = result.value;
  if (type.toUpperCase() !== "LORA") throw invalid(origin, `its peft_type is ${excerpt(type)}; only LORA is merged`);
  for (const [name, allowed] of Object.entries(offValues)) {
    const value = result.value[name] ?? null;
    const isEmpty = value === null || (typeof value === "object" && Object.keys(value).length === 0);
    if (!isEmpty && !allowed.includes(value)) {
      throw invalid(origin, `its field ${name}, ${excerpt(value)}, is not supported`);
    }
  }
  const patterns = Object.entries(alpha_pattern ?? {}).map(
    ([pattern, value]) => [modulePattern(pattern, origin), value] as const,
  );
  return {
    scaleOf(module, rank) {
      const [, own = alpha] = patterns.find(([pattern]) => pattern.test(module)) ?? [];
      return usesRoot === true ? own / Math.sqrt(rank) : own / rank;
    },
  };
}

/** As PEFT matches it: the whole name of a module, or its last parts. */
function modulePattern(pattern: string, origin: AdapterOrigin): RegExp {
  try {
    return new RegExp(String.raw`^(.*\.)?(${pattern})$`);
  } catch (cause) {
    throw invalid(origin, `alpha_pattern has ${excerpt(pattern)}, which is no regular expression`, cause);
  }
}

function invalid(origin: AdapterOrigin, reason: string, cause?: unknown): EngineError {
  return invalidAdapter(origin, `Its ${adapterConfigName}: ${reason}.`, cause);
}
