/** Computes a few tokens before the first request, which then finds memory, kernels and pages of the weights ready. */
import { EngineError } from "../contract/errors.ts";
import { createSamplingParams } from "../contract/sampling-params.ts";
import type { EngineCoreOutput, ToEngineThread } from "../thread/messages.ts";
import type { EngineCore } from "./engine-core.ts";

/** A prompt and a step that decodes: the two forms of a step. */
const NUM_TOKENS = 2;

/** Also the salt. No request has it, so no request reuses the keys and values. */
const requestId = "fovea-warm-up";

/**
 * @param createCore Over the decoder of the service, with a scheduler and a sampler of its own: counters and logits
 *   processors do not see the warm-up.
 * @returns Time of the first step in seconds.
 * @throws EngineError of a step that fails, such as `runtime_failed`.
 */
export function warmUp(
  createCore: (takeMessages: () => readonly ToEngineThread[]) => EngineCore,
  { maxModelLen, tokenId }: { readonly maxModelLen: number; readonly tokenId: number },
): number {
  const messages: ToEngineThread[] = [warmUpRequest(tokenId, Math.min(NUM_TOKENS, maxModelLen - 1))];
  const core = createCore(() => messages.splice(0));
  core.drainMessages();
  const start = performance.now();
  let seconds = 0;
  for (let isFirst = true; core.hasWork; isFirst = false) {
    requireSuccess(core.step());
    if (isFirst) seconds = (performance.now() - start) / 1000;
  }
  return seconds;
}

function warmUpRequest(tokenId: number, maxTokens: number): ToEngineThread {
  return {
    kind: "add",
    request: {
      requestId,
      promptTokenIds: [tokenId],
      images: [],
      samplingParams: createSamplingParams({ temperature: 0, maxTokens, ignoreEos: true }),
      badWordsTokenIds: [],
      grammar: null,
      seed: 0,
      cacheSalt: requestId,
    },
  };
}

function requireSuccess(outputs: readonly EngineCoreOutput[]): void {
  for (const { error } of outputs) if (error !== null) throw new EngineError(error.code, error.message);
}
