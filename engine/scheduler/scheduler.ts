/** Decides what each sequence computes in the next step, and applies the step's tokens to the sequences. */
import { EngineError, invariant } from "../contract/errors.ts";
import type { EngineRequest, ImageFeature } from "../core/engine-request.ts";
import type { FinishReason } from "../contract/request-output.ts";
import type { EncoderCache } from "../vision/encoder-cache.ts";
import { endTokenOf, numEmbeddingsOf } from "../vision/image-span.ts";
import type { KvSlots } from "../kv/kv-slots.ts";
import type { EngineCoreOutput, EngineCoreStats } from "../thread/messages.ts";
import { PrefixCache } from "../kv/prefix-cache.ts";
import type { PrefixCacheOptions, SlotPlacement } from "../kv/prefix-cache.ts";
import type { PrefillChunk, SchedulerOutput } from "./scheduler-output.ts";
import { Sequence } from "./sequence.ts";
import type { SlotTransfer } from "../kv/slot-transfer.ts";
import { checkStop } from "./stop-conditions.ts";
import type { StopLimits } from "./stop-conditions.ts";
import type { StepResults } from "../core/step-results.ts";

export interface SchedulerOptions extends StopLimits, PrefixCacheOptions {
  readonly maxNumBatchedTokens: number;
  readonly maxNumWaiting: number;
  readonly kvSlots: KvSlots;
  readonly encoderCache: EncoderCache;
}

/** Mutable. First come, first served. */
export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #kvSlots: KvSlots;
  readonly #encoderCache: EncoderCache;
  readonly #prefixCache: PrefixCache;
  /** In order of arrival. */
  #waiting: Sequence[] = [];
  /** In order of admission; each owns a KV slot. */
  #running: Sequence[] = [];
  #numPromptTokens = 0;
  #numGenerationTokens = 0;
  #numPrefixCacheQueries = 0;
  #numPrefixCacheHits = 0;
  #numSteps = 0;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#kvSlots = options.kvSlots;
    this.#encoderCache = options.encoderCache;
    this.#prefixCache = new PrefixCache(options.kvSlots, options);
  }

  get hasUnfinished(): boolean {
    return this.#waiting.length > 0 || this.#running.length > 0;
  }

  get stats(): EngineCoreStats {
    return {
      numRequestsRunning: this.#running.length,
      numRequestsWaiting: this.#waiting.length,
      kvCacheUsage: this.#kvSlots.usage,
      numPromptTokens: this.#numPromptTokens,
      numGenerationTokens: this.#numGenerationTokens,
      numPrefixCacheQueries: this.#numPrefixCacheQueries,
      numPrefixCacheHits: this.#numPrefixCacheHits,
      numSteps: this.#numSteps,
    };
  }

  /** Throws EngineError `queue_full` if all slots are taken and `maxNumWaiting` requests wait. */
  add(request: EngineRequest): void {
    const { maxNumWaiting, maxModelLen } = this.#options;
    const numTokens = request.promptTokenIds.length;
    invariant(numTokens > 0 && numTokens < maxModelLen, `a prompt of ${numTokens} tokens, the limit is ${maxModelLen}`);
    const numBeyondSlots = this.#waiting.length - this.#kvSlots.numFree;
    if (numBeyondSlots >= maxNumWaiting) {
      throw new EngineError(
        "queue_full",
        `${this.#waiting.length} requests are waiting; the limit is ${maxNumWaiting}.`,
      );
    }
    this.#waiting.push(new Sequence(request));
  }

  /** Ends waiting and running sequences between steps. Unknown ids are ignored: their sequences have ended already. */
  abort(requestIds: readonly string[]): EngineCoreOutput[] {
    // A set, because thousands of requests may be aborted at once.
    const ids = new Set(requestIds);
    const aborted = [...this.#waiting, ...this.#running].filter(({ requestId }) => ids.has(requestId));
    for (const sequence of aborted) this.#finish(sequence, "abort");
    this.#dropFinished();
    return aborted.map((sequence) => createOutput(sequence));
  }

  /**
   * Fills one step within the token budget. Sequences that decode take one token each. Prompts in progress take the
   * rest of the budget in chunks. Waiting requests are then admitted in order of arrival while tokens and slots last. A
   * request whose prefix another sequence is about to compute waits for it, and so do the requests behind it. A chunk
   * may end inside an image; the image is encoded whole, in the step of the first chunk that needs it.
   */
  schedule(): SchedulerOutput {
    let tokenBudget = this.#options.maxNumBatchedTokens;
    const decodes = this.#running.filter((sequence) => !sequence.isPrefilling).slice(0, tokenBudget);
    tokenBudget -= decodes.length;
    const prefills: PrefillChunk[] = [];
    const transfers: SlotTransfer[] = [];
    for (const sequence of this.#running) {
      if (sequence.isPrefilling) tokenBudget -= this.#schedulePrefill(sequence, tokenBudget, prefills);
    }
    while (tokenBudget > 0 && this.#waiting.length > 0 && this.#kvSlots.numFree > 0) {
      const sequence = this.#waiting[0];
      const placement = this.#prefixCache.tryPlace(sequence);
      if (placement === null) break;
      sequence.skipCachedTokens(placement.numCachedTokens);
      const numTokens = this.#schedulePrefill(sequence, tokenBudget, prefills);
      if (numTokens === 0) {
        sequence.skipCachedTokens(0);
        break;
      }
      tokenBudget -= numTokens;
      this.#waiting.shift();
      transfers.push(...this.#admit(sequence, placement));
    }
    return { transfers, decodes, prefills };
  }

  /** Applies the results of the step. Sequences aborted in the meantime are skipped. */
  update(scheduled: SchedulerOutput, results: StepResults): EngineCoreOutput[] {
    const outputs: EngineCoreOutput[] = [];
    this.#numSteps++;
    for (const { sequence, numTokens } of scheduled.prefills) {
      this.#numPromptTokens += numTokens;
      this.#advance(sequence, numTokens, results, outputs);
    }
    for (const sequence of scheduled.decodes) this.#advance(sequence, 1, results, outputs);
    this.#dropFinished();
    return outputs;
  }

  #advance(sequence: Sequence, numTokens: number, results: StepResults, outputs: EngineCoreOutput[]): void {
    if (sequence.finishReason !== null) return;
    sequence.numComputedTokens += numTokens;
    this.#releaseImages(sequence, (image) => endTokenOf(image) <= sequence.numComputedTokens);
    const result = results.get(sequence);
    switch (result?.kind) {
      case undefined:
        return;
      case "failed": {
        this.#finish(sequence, "error");
        const { code, message } = result.error;
        outputs.push({ ...createOutput(sequence), error: { code, message } });
        return;
      }
      case "sampled": {
        sequence.outputTokenIds.push(result.tokenId);
        this.#numGenerationTokens++;
        const stop = checkStop(sequence, this.#options);
        if (stop !== null) this.#finish(sequence, stop.finishReason);
        outputs.push({
          ...createOutput(sequence),
          tokenIds: [result.tokenId],
          logprobs: result.logprobs === null ? null : [result.logprobs],
          promptLogprobs: result.promptLogprobs,
          stopReason: stop?.stopReason ?? null,
        });
        return;
      }
      default:
        result satisfies never;
    }
  }

  /** Returns the transfers that its slot needs before the first chunk. */
  #admit(sequence: Sequence, placement: SlotPlacement): SlotTransfer[] {
    const transfers = this.#prefixCache.take(sequence, placement);
    sequence.kvSlot = placement.kvSlot;
    this.#running.push(sequence);
    this.#numPromptTokens += placement.numCachedTokens;
    this.#numPrefixCacheHits += placement.numCachedTokens;
    if (this.#prefixCache.serves(sequence)) this.#numPrefixCacheQueries += sequence.numPromptTokens;
    return transfers;
  }

  /** Appends the sequence's next chunk. Returns its number of tokens; 0 if none can be computed in this step. */
  #schedulePrefill(sequence: Sequence, tokenBudget: number, prefills: PrefillChunk[]): number {
    const firstToken = sequence.numComputedTokens;
    const wantedEnd = Math.min(sequence.numPromptTokens, firstToken + tokenBudget);
    if (wantedEnd === firstToken) return 0;
    const { endToken, imagesToEncode } = this.#holdImages(sequence, wantedEnd);
    const numTokens = Math.max(endToken - firstToken, 0);
    if (numTokens > 0) prefills.push({ sequence, firstToken, numTokens, imagesToEncode });
    return numTokens;
  }

  /**
   * References the images before `wantedEnd`. The chunk ends before the first image for which the cache has no room.
   */
  #holdImages(sequence: Sequence, wantedEnd: number): { endToken: number; imagesToEncode: ImageFeature[] } {
    const imagesToEncode: ImageFeature[] = [];
    for (; sequence.endHeldImage < sequence.images.length; sequence.endHeldImage++) {
      const image = sequence.images[sequence.endHeldImage];
      if (image.placeholder.offset >= wantedEnd) break;
      const hold = this.#encoderCache.tryAcquire(image.mmHash, numEmbeddingsOf(image));
      if (hold === null) return { endToken: image.placeholder.offset, imagesToEncode };
      if (hold === "to-encode") imagesToEncode.push(image);
    }
    return { endToken: wantedEnd, imagesToEncode };
  }

  #releaseImages(sequence: Sequence, isDone: (image: ImageFeature) => boolean): void {
    while (sequence.firstHeldImage < sequence.endHeldImage && isDone(sequence.images[sequence.firstHeldImage])) {
      this.#encoderCache.release(sequence.images[sequence.firstHeldImage++].mmHash);
    }
  }

  #finish(sequence: Sequence, finishReason: FinishReason): void {
    sequence.finishReason = finishReason;
    this.#releaseImages(sequence, () => true);
    // The KV of a failed run is not reused.
    if (sequence.kvSlot !== null) this.#prefixCache.release(sequence.kvSlot, finishReason !== "error");
    sequence.kvSlot = null;
  }

  #dropFinished(): void {
    this.#waiting = this.#waiting.filter(({ finishReason }) => finishReason === null);
    this.#running = this.#running.filter(({ finishReason }) => finishReason === null);
  }
}

function createOutput(sequence: Sequence): EngineCoreOutput {
  return {
    requestId: sequence.requestId,
    tokenIds: [],
    logprobs: null,
    finishReason: sequence.finishReason,
    stopReason: null,
    error: null,
    numCachedTokens: sequence.numCachedTokens,
  };
}
