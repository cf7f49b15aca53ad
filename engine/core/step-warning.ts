/** Warns of a setting with which a fault of the CUDA provider was reported. */
import process from "node:process";

import type { EngineConfig } from "../contract/config.ts";

/**
 * Steps of more tokens have ended a process with an illegal memory access in PagedAttention: with 2,048 tokens a step,
 * a prompt of 262,112 tokens after a shorter one; 1,024 and 512 were fine. The cause is not known, so larger steps are
 * possible here, too.
 *
 * @see https://github.com/microsoft/onnxruntime-genai/issues/2583
 */
const MAX_SAFE_STEP_TOKENS = 1024;

/** For a paged KV cache. Does nothing for a device that computes attention otherwise, and for smaller steps. */
export function warnOfLargeSteps({
  device,
  maxNumBatchedTokens,
}: Pick<EngineConfig, "device" | "maxNumBatchedTokens">): void {
  if (device !== "cuda" || maxNumBatchedTokens <= MAX_SAFE_STEP_TOKENS) return;
  process.emitWarning(
    `A step may have ${maxNumBatchedTokens} tokens. On cuda, steps of more than ${MAX_SAFE_STEP_TOKENS} tokens may ` +
      "end with an illegal memory access in paged attention (onnxruntime-genai issue 2583), which ends the process. " +
      `Lower this limit of batched tokens to ${MAX_SAFE_STEP_TOKENS} or less for long prompts.`,
  );
}
