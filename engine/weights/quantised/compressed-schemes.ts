/** The schemes in which compressed-tensors quantises groups of modules. */
import { z } from "zod";

import { compilePattern, groupSizeField, invalidCheckpoint, unsupported } from "./quantisation.ts";

const argumentsSchema = z.looseObject({
  num_bits: z.int(),
  type: z.string().default("int"),
  symmetric: z.boolean().default(true),
  strategy: z.string().nullish(),
  group_size: groupSizeField.nullish(),
  block_structure: z.unknown().optional(),
  dynamic: z.union([z.boolean(), z.string()]).default(false),
});

export const groupSchema = z.looseObject({
  targets: z.array(z.string()),
  weights: argumentsSchema.nullish(),
  input_activations: argumentsSchema.nullish(),
  output_activations: z.unknown().optional(),
});

export type Arguments = z.output<typeof argumentsSchema>;

export interface Scheme {
  readonly name: string;
  readonly matches: (module: string) => boolean;
  readonly isClass: boolean;
  readonly weights: Arguments;
  readonly quantisesActivations: boolean;
}

export function parseGroup(name: string, group: z.output<typeof groupSchema>): Scheme[] {
  const path = `config_groups.${name}`;
  const { weights, input_activations: activations, targets } = group;
  if (weights == null) throw unsupported(`${path}.weights`, weights ?? null, "only weights are served quantised");
  if (group.output_activations != null) {
    throw unsupported(`${path}.output_activations`, group.output_activations, "only weights are served quantised");
  }
  checkWeights(`${path}.weights`, weights);
  const quantisesActivations = weights.type === "int" && activations != null;
  if (quantisesActivations) checkActivations(path, weights, activations);
  return targets.map((target) => {
    const isClass = !target.startsWith("re:") && !target.includes(".") && /^[A-Z]/.test(target);
    const pattern = target.startsWith("re:") ? compilePattern(`${path}.targets`, target.slice(3)) : null;
    return {
      name,
      isClass,
      matches: (module) => isClass || (pattern === null ? module === target : pattern.test(module)),
      weights,
      quantisesActivations,
    };
  });
}

function checkWeights(path: string, { num_bits: bits, type, strategy, group_size: groupSize }: Arguments): void {
  if (type === "int" && bits !== 4 && bits !== 8) {
    throw unsupported(`${path}.num_bits`, bits, "integers are served in 4 and 8 bits");
  }
  if (type === "float" && bits !== 8 && bits !== 4) {
    throw unsupported(`${path}.num_bits`, bits, "floating point numbers are served in 4 and 8 bits");
  }
  if (type !== "int" && type !== "float") throw unsupported(`${path}.type`, type, "served are int and float");
  const form = type === "float" ? (bits === 4 ? "float4" : "float8") : "int";
  const used = strategy ?? (groupSize == null ? "tensor" : "group");
  if (!servedStrategies[form].includes(used)) {
    throw unsupported(`${path}.strategy`, used, `of type ${type}, served are ${servedStrategies[form].join(", ")}`);
  }
  const size = floatGroups[used];
  if (type === "float" && size !== undefined && groupSize !== size) {
    throw unsupported(`${path}.group_size`, groupSize ?? null, `of type float, groups are served in ${size}`);
  }
}

const servedStrategies: Readonly<Record<"int" | "float8" | "float4", readonly string[]>> = {
  int: ["group", "channel", "tensor"],
  float8: ["group", "channel", "tensor", "block"],
  float4: ["group", "tensor_group"],
};

/** By the strategy: MX formats have groups of 32, NVFP4 groups of 16 under a scale of the matrix. */
export const floatGroups: Readonly<Record<string, number>> = { group: 32, tensor_group: 16 };

/** W8A8: as our own, activations have 8 bits and a scale per token. */
function checkActivations(path: string, weights: Arguments, activations: Arguments): void {
  const isServed =
    activations.num_bits === 8 &&
    activations.type === "int" &&
    activations.symmetric &&
    activations.dynamic === true &&
    activations.strategy === "token";
  if (!isServed) {
    throw unsupported(
      `${path}.input_activations`,
      activations,
      "activations are served in 8 symmetric bits with a dynamic scale per token",
    );
  }
  if (weights.num_bits !== 8 || weights.strategy === "group" || !weights.symmetric) {
    throw unsupported(
      `${path}.weights`,
      weights,
      "with quantised activations, weights have 8 symmetric bits and a scale per channel",
    );
  }
}

export function describeScheme({ weights, quantisesActivations, isClass, name }: Scheme): string {
  const groups = weights.group_size == null ? "" : ` in groups of ${weights.group_size}`;
  const kind =
    weights.type === "float" ? `FP${weights.num_bits}` : `W${weights.num_bits}A${quantisesActivations ? 8 : 16}`;
  return `${kind}${groups}${isClass ? "" : ` (${name})`}`;
}

/** A module's own name or pattern counts before its class, as in compressed-tensors. */
export function schemeOf(schemes: readonly Scheme[], module: string): Scheme {
  const own = schemes.find(({ isClass, matches }) => !isClass && matches(module));
  const scheme = own ?? schemes.find(({ isClass }) => isClass);
  if (scheme !== undefined) return scheme;
  throw invalidCheckpoint(
    `The checkpoint has quantised weights of ${module}, but no group in quantization_config.config_groups targets it.`,
  );
}
