/** Follows a request through the engine thread, and reports how long it waited and computed. */
import { epochMs } from "../contract/request-stage.ts";
import type { OnRequestStage } from "../contract/request-stage.ts";
import type { EngineCoreOutput } from "../thread/messages.ts";

/** Mutable. Choices of a request count together: `decode` ends with the last of them. */
export class RequestStages {
  readonly #onStage: OnRequestStage;
  readonly #postedMs = epochMs();
  #firstTokenMs: number | null = null;
  #numTokens = 0;
  #numOpen: number;

  /** Call it when the request is passed to the thread. */
  constructor(onStage: OnRequestStage, numChoices: number) {
    this.#onStage = onStage;
    this.#numOpen = numChoices;
  }

  /**
   * Call it for each output of a choice up to its end.
   *
   * @param isStopped Whether a stop string ends the choice here, although the engine thread continues.
   */
  take({ tokenIds, scheduledMs, finishReason, numCachedTokens }: EngineCoreOutput, isStopped: boolean): void {
    const nowMs = epochMs();
    this.#numTokens += tokenIds.length;
    if (this.#numOpen > 0 && this.#firstTokenMs === null && scheduledMs !== undefined) {
      this.#firstTokenMs = nowMs;
      this.#onStage({ name: "queue", startMs: this.#postedMs, endMs: Math.max(this.#postedMs, scheduledMs) });
      const attributes = { "fovea.cached_tokens": numCachedTokens };
      this.#onStage({ name: "prefill", startMs: Math.max(this.#postedMs, scheduledMs), endMs: nowMs, attributes });
    }
    if ((isStopped || finishReason !== null) && --this.#numOpen === 0) this.end(nowMs, finishReason === "error");
  }

  /** Also for a request that its caller ends. Idempotent. */
  end(nowMs = epochMs(), hasFailed = false): void {
    if (this.#firstTokenMs === null) return;
    const attributes = { "gen_ai.usage.output_tokens": this.#numTokens };
    this.#onStage({ name: "decode", startMs: this.#firstTokenMs, endMs: nowMs, attributes, hasFailed });
    this.#firstTokenMs = null;
    this.#numOpen = -1;
  }
}
