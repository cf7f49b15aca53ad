/** What all models of the Vercel AI SDK have in common: when their calls begin, and how they fail. */
import { APICallError } from "@ai-sdk/provider";

import { EngineError } from "../../engine/index.ts";
import type { Engine } from "../../engine/index.ts";

/** Rejects with the engine's failure, or with the reason of the signal. */
export async function waitUntilReady(engine: Engine, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  const aborted = Promise.withResolvers<never>();
  const onAbort = (): void => aborted.reject(signal?.reason);
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    await Promise.race([engine.ready, aborted.promise]);
  } finally {
    signal?.removeEventListener("abort", onAbort);
  }
}

/** An abort carries its signal's reason, by which the AI SDK recognises it. */
export function asCallError(error: unknown, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted === true) return signal.reason;
  if (!(error instanceof EngineError) || error.code !== "queue_full") return error;
  return new APICallError({
    message: error.message,
    url: "fovea:",
    requestBodyValues: {},
    isRetryable: true,
    cause: error,
  });
}
