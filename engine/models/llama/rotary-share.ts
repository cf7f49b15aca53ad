/** The share of a head that is rotated, for decoders that rotate a part of each. */
import { z } from "zod";

import { parseConfigObject, positiveNumber, unsupportedField } from "../config-field.ts";

const shareField = z.looseObject({ partial_rotary_factor: positiveNumber.max(1).nullish() });
const holderFields = shareField.extend({ rope_scaling: shareField.nullish(), rope_parameters: shareField.nullish() });

/**
 * Returns the share, and the configuration without it, which `parseDecoderConfig` takes. Throws like it.
 *
 * @param defaultShare Of a configuration without one.
 */
export function takeRotaryShare(
  config: unknown,
  path: string,
  defaultShare: number,
): { readonly share: number; readonly rest: object } {
  const { partial_rotary_factor: outer, ...given } = parseConfigObject(holderFields, config, path);
  const { rope_scaling: scaling, rope_parameters: parameters } = given;
  return {
    share: (scaling ?? parameters)?.partial_rotary_factor ?? outer ?? defaultShare,
    rest: {
      ...given,
      rope_scaling: scaling && { ...scaling, partial_rotary_factor: null },
      rope_parameters: parameters && { ...parameters, partial_rotary_factor: null },
    },
  };
}

/** The dimensions of a head that are rotated. Throws like `parseDecoderConfig` for an odd number. */
export function rotatedDimensions(path: string, headDim: number, share: number): number {
  const rotaryDim = Math.trunc(headDim * share);
  if (rotaryDim > 0 && rotaryDim % 2 === 0) return rotaryDim;
  const reason = `${rotaryDim} of ${headDim} dimensions of a head do not form pairs`;
  throw unsupportedField(path, "partial_rotary_factor", share, reason);
}
