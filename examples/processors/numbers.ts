/** Checked numbers among a request's arguments. */
import type { SamplingParams } from "fovea";

/**
 * The argument, or undefined if the request does not give it.
 *
 * @throws Error for any other value than a number from `minimum` to `maximum`.
 */
export function numberArgument(
  { extraArgs }: SamplingParams,
  name: string,
  minimum: number,
  maximum: number,
): number | undefined {
  const value = extraArgs[name];
  if (value === undefined) return undefined;
  if (typeof value === "number" && value >= minimum && value <= maximum) return value;
  throw new Error(`${name} must be a number from ${minimum} to ${maximum}, got ${JSON.stringify(value)}.`);
}
