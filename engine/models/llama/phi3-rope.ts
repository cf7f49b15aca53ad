/** Rotary embeddings of Phi-3's configurations, which have names of their own for LongRoPE and may rotate a part of heads. */
import { z } from "zod";

import { parseConfigObject, refuseOtherThan } from "../config-field.ts";
import { takeRotaryShare } from "./rotary-share.ts";

const ropeKind = z.looseObject({ rope_type: z.string().nullish(), type: z.string().nullish() });
const ropeHolder = z.looseObject({ rope_parameters: ropeKind.nullish(), rope_scaling: ropeKind.nullish() });

/** transformers has these two kinds for Phi-3, and computes the second one for files that say `su` or `yarn`. */
const kinds = ["default", "longrope", "su", "yarn"] as const;

/**
 * The share of a head that is rotated, and the configuration without it and with one name for LongRoPE. Throws like
 * `parseDecoderConfig`.
 */
export function takePhi3Rope(config: unknown, path: string): { readonly share: number; readonly rest: object } {
  const { rope_parameters: parameters, rope_scaling: scaling, ...others } = parseConfigObject(ropeHolder, config, path);
  const named = (field: string, rope: z.output<typeof ropeKind> | null | undefined): object | null => {
    if (rope == null) return null;
    refuseOtherThan(rope, path === "" ? field : `${path}.${field}`, { rope_type: kinds, type: kinds });
    const kind = rope.rope_type ?? rope.type ?? "default";
    return { ...rope, rope_type: kind === "default" ? kind : "longrope" };
  };
  const rest = {
    ...others,
    rope_parameters: named("rope_parameters", parameters),
    rope_scaling: named("rope_scaling", scaling),
  };
  return takeRotaryShare(rest, path, 1);
}
