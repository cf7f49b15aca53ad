/** One request from its admission to its end, whether it generates or only renders its prompt. */
import { EngineError } from "../contract/errors.ts";
import type { RequestOutputs } from "../output/output-processor.ts";
import type { EngineThread } from "../thread/engine-thread.ts";
import type { RequestStages } from "./request-stages.ts";

/** Mutable. */
export class RunningRequest {
  readonly #ended = new AbortController();
  /** Null while the input is processed. */
  outputs: RequestOutputs | null = null;
  /** Null without an observer, and before the request is in the engine thread. */
  stages: RequestStages | null = null;
  /** Null before it is sent to one. */
  thread: EngineThread | null = null;
  /** Ids of its sequences that the engine thread holds and has not reported as ended. */
  readonly inThread = new Set<string>();

  /** Aborted, with an EngineError, when the request ends before its last output. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  end(error: EngineError): void {
    this.#ended.abort(error);
    this.outputs?.fail(error);
  }

  /** Ends with the signal. Returns a function that stops listening. */
  endWith(signal: AbortSignal | undefined): () => void {
    const onAbort = (): void => {
      this.end(new EngineError("aborted", "The request was aborted.", { cause: signal?.reason }));
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted === true) onAbort();
    return () => signal?.removeEventListener("abort", onAbort);
  }
}
