/** Whether a step has room for an image that a model computes as a whole. */
import type { EngineConfig } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { fewestStepTokens } from "../scheduler/whole-images.ts";

/** @throws EngineError `invalid_configuration` if steps are too small. */
export function requireRoomForImage(
  { maxNumBatchedTokens, maxNumSequences }: Pick<EngineConfig, "maxNumBatchedTokens" | "maxNumSequences">,
  numImageTokens: number,
): void {
  const fewest = fewestStepTokens(numImageTokens, maxNumSequences);
  if (maxNumBatchedTokens >= fewest) return;
  throw new EngineError(
    "invalid_configuration",
    `This model computes the ${numImageTokens} tokens of an image in one step, so that ${maxNumSequences} sequences need steps of ${fewest} tokens or more; the limit is ${maxNumBatchedTokens}.`,
    { setting: "maxNumBatchedTokens" },
  );
}
