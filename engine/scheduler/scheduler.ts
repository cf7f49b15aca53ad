/** Decides what each sequence computes in the next step, and applies the step's tokens to the sequences. */
import { EngineError, invariant } from "../contract/errors.ts";
import type { FinishReason } from "../contract/request-output.ts";
import { epochMs } from "../contract/request-stage.ts";
import { promptLookupArgument } from "../contract/speculative-config.ts";
import type { EngineRequest, ImageFeature } from "../core/engine-request.ts";
import type { StepResult, StepResults } from "../core/step-results.ts";
import type { KvManager, KvPlacement } from "../kv/kv-manager.ts";
import type { SlotTransfer } from "../kv/slot-transfer.ts";
import { endTokenOf } from "../multimodal/placeholder.ts";
import type { EngineCoreOutput, EngineCoreStats } from "../thread/messages.ts";
import type { EncoderCache } from "../vision/encoder-cache.ts";
import { adapterStatsOf, noAdapterStats } from "./adapter-stats.ts";
import { ChunkPlanner, TokenBudget } from "./chunk-planner.ts";
import type { ChunkOptions } from "./chunk-planner.ts";
import { Drafts, noDrafts } from "./drafts.ts";
import type { DraftOptions } from "./drafts.ts";
import { ImageHolds } from "./image-holds.ts";
import type { PrefillChunk, SchedulerOutput } from "./scheduler-output.ts";
import { checkStop, Sequence } from "./sequence.ts";
import type { StopLimits } from "./sequence.ts";
import { aloneError, noStepLimit, StepLimit } from "./step-limit.ts";
import type { FailedRun } from "./step-limit.ts";
import { insertByUrgency, WaitingQueue } from "./waiting-queue.ts";

export interface SchedulerOptions extends StopLimits, DraftOptions, ChunkOptions {
  readonly maxNumBatchedTokens: number;
  /** See `TokenBudget`. Default: no such bound. */
  readonly enoughPromptTokens?: number | undefined;
  readonly maxNumWaiting: number;
  readonly kvManager: KvManager;
  readonly encoderCache: EncoderCache;
  /** Whether images are encoded beside the steps, and a sequence waits for them. Default false: within the step. */
  readonly encodesInBackground?: boolean | undefined;
  /** A step of this many tokens cannot be made smaller: 1, or what an image takes that is kept whole. Default 1. */
  readonly fewestStepTokens?: number | undefined;
}

/** Looking for a prefix compares a prompt with all slots, so the number of requests that a step passes over is bounded. */
const MAX_PASSED_OVER = 8;

/** Mutable. By priority; first come, first served among equal ones. */
export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #kvManager: KvManager;
  readonly #imageHolds: ImageHolds;
  readonly #chunks: ChunkPlanner;
  /** Null until a step finds no memory. */
  #stepLimit: StepLimit | null = null;
  readonly #waiting = new WaitingQueue();
  /** Null until a sequence may have drafts. */
  #drafts: Drafts | null;
  /** By urgency, the most urgent first; each holds memory of the KV cache. */
  #running: Sequence[] = [];
  #numArrived = 0;
  #numPromptTokens = 0;
  #numGenerationTokens = 0;
  #numPrefixCacheQueries = 0;
  #numPrefixCacheHits = 0;
  #numPreemptions = 0;
  #numSteps = 0;
  #hasPreempted = false;
  /** Whether a request has had an adapter. */
  #hasAdapters = false;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#kvManager = options.kvManager;
    this.#imageHolds = new ImageHolds(options.encoderCache, options.encodesInBackground === true);
    this.#chunks = new ChunkPlanner(options, this.#imageHolds);
    this.#drafts = (options.speculativeConfig ?? null) === null ? null : new Drafts(options);
  }

  get hasUnfinished(): boolean {
    return this.#waiting.length > 0 || this.#running.length > 0;
  }

  get stats(): EngineCoreStats {
    return {
      numRequestsRunning: this.#running.length,
      numRequestsWaiting: this.#waiting.length,
      kvCacheUsage: this.#kvManager.usage,
      kvCapacity: this.#kvManager.capacity,
      numPromptTokens: this.#numPromptTokens,
      numGenerationTokens: this.#numGenerationTokens,
      numPrefixCacheQueries: this.#numPrefixCacheQueries,
      numPrefixCacheHits: this.#numPrefixCacheHits,
      numPreemptions: this.#numPreemptions,
      numSteps: this.#numSteps,
      drafts: this.#drafts?.stats ?? noDrafts,
      adapters: this.#hasAdapters ? adapterStatsOf(this.#running, this.#waiting) : noAdapterStats,
    };
  }

  /** Whether the last step has preempted a sequence, so that the next one may admit others. */
  get hasPreempted(): boolean {
    return this.#hasPreempted;
  }

  /** Throws EngineError `queue_full` if no further sequence can run and `maxNumWaiting` requests wait. */
  add(request: EngineRequest): void {
    const { maxNumWaiting, maxModelLen } = this.#options;
    const numTokens = request.promptTokenIds.length;
    const numPositions = Math.max(numTokens, request.positions?.next ?? 0);
    invariant(
      numTokens > 0 && numPositions < maxModelLen,
      `a prompt of ${numTokens} tokens and ${numPositions} positions, the limit is ${maxModelLen}`,
    );
    const numQueued = this.#waiting.length - this.#kvManager.numFreeSequences;
    if (numQueued >= maxNumWaiting) {
      throw new EngineError(
        "queue_full",
        `${this.#waiting.length} requests are waiting; the limit is ${maxNumWaiting}.`,
      );
    }
    if (promptLookupArgument in request.samplingParams.extraArgs) this.#drafts ??= new Drafts(this.#options);
    if (request.adapterId) this.#hasAdapters = true;
    this.#waiting.add(new Sequence(request, this.#numArrived++, this.#options.joinsImages));
  }

  /** Ends waiting and running sequences between steps. Unknown ids are ignored: their sequences have ended already. */
  abort(requestIds: readonly string[]): EngineCoreOutput[] {
    // A set, because thousands of requests may be aborted at once.
    const ids = new Set(requestIds);
    const aborted = [...this.#waiting, ...this.#running].filter(({ requestId }) => ids.has(requestId));
    for (const sequence of aborted) this.#finish(sequence, "abort");
    // Not after each step: a step ends none that waits, and thousands may.
    if (aborted.length > 0) this.#waiting.dropFinished();
    this.#dropFinished();
    return aborted.map((sequence) => createOutput(sequence));
  }

  /**
   * Fills one step within the token budget. Sequences that decode take one token each. Prompts in progress take the
   * rest of the budget in chunks. Waiting requests are then admitted in order of `WaitingQueue` while tokens and room
   * last. A request whose prefix another sequence is about to compute waits for it, and so do the requests behind it;
   * `#place` has the exception. A chunk may end inside an image, unless the model keeps images whole; the image is
   * encoded whole, in the step of the first chunk that needs it. If images are encoded in the background, a chunk waits
   * until all of its images are encoded, and the sequence keeps its memory until it is.
   *
   * If a sequence has no room for its next token, the least urgent running sequence is preempted: of those with the
   * highest priority value, the youngest. It gives up its memory and waits, before all that came later, until it can be
   * computed again. The most urgent sequence therefore always advances.
   *
   * If the device had no memory for a step, its sequences are preempted as well, and steps have fewer tokens and
   * sequences for a while; see `StepLimit`.
   *
   * Drafts take what tokens and room are left.
   */
  schedule(): SchedulerOutput {
    const numPreemptionsBefore = this.#numPreemptions;
    const budget = this.#createBudget();
    const transfers: SlotTransfer[] = [];
    const { maxTokens, maxSequences } = this.#stepLimit ?? noStepLimit;
    const decodes = this.#scheduleDecodes(
      Math.min(this.#options.maxNumBatchedTokens, maxTokens, maxSequences),
      transfers,
    );
    budget.takeDecodes(decodes.length);
    const prefills: PrefillChunk[] = [];
    // The list gets shorter at its end when a sequence is preempted.
    for (let index = 0; index < this.#running.length; index++) {
      const sequence = this.#running[index]!;
      if (!sequence.isPrefilling || budget.promptTokensLeft === 0) continue;
      if (decodes.length + prefills.length >= maxSequences) break;
      // A sequence whose next image is not encoded, or has no room, preempts no other.
      if (this.#chunks.plan(sequence, budget.promptTokensLeft) === null) continue;
      if (this.#makeRoom(sequence)) transfers.push(...this.#schedulePrefill(sequence, budget, prefills));
    }
    this.#hasPreempted = this.#numPreemptions > numPreemptionsBefore;
    if (this.#hasPreempted) {
      const running = new Set(this.#running);
      const remaining = decodes.filter((sequence) => running.has(sequence));
      return { transfers, decodes: remaining, prefills, awaitedImage: this.#awaitedImage };
    }
    transfers.push(...this.#admitWaiting(budget, prefills));
    if (this.#drafts !== null) transfers.push(...this.#drafts.schedule(decodes, budget.tokensLeft));
    return { transfers, decodes, prefills, awaitedImage: this.#awaitedImage };
  }

  /**
   * Admits requests that have arrived since `schedule`, for a decoder that computes the step's decodes before its
   * prompts. Returns the step as it is now, with the transfers that its prompts wait for.
   */
  admitLate({ decodes, prefills }: SchedulerOutput): SchedulerOutput {
    const budget = this.#createBudget();
    budget.takeDecodes(decodes.length);
    for (const chunk of prefills) budget.takePrompt(chunk);
    const unfinished = prefills.filter(({ sequence }) => sequence.finishReason === null);
    // A sequence that was aborted after its decode has freed its room but keeps its row until the end of the step.
    const numAborted = decodes.filter(({ finishReason }) => finishReason !== null).length;
    const transfers = this.#hasPreempted ? [] : this.#admitWaiting(budget, unfinished, numAborted);
    return { transfers, decodes, prefills: unfinished, awaitedImage: this.#awaitedImage };
  }

  /** Applies the results of the step. Sequences aborted in the meantime are skipped. */
  update(scheduled: SchedulerOutput, results: StepResults): EngineCoreOutput[] {
    const outputs: EngineCoreOutput[] = [];
    this.#numSteps++;
    for (const { sequence, numTokens } of scheduled.prefills) this.#advance(sequence, numTokens, results, outputs);
    for (const sequence of scheduled.decodes) this.#advance(sequence, 1, results, outputs);
    this.#dropFinished();
    this.#limitSteps(results);
    return outputs;
  }

  /** Ends the sequences that wait for an image that cannot be encoded. */
  failImage(mmHash: string, error: EngineError): EngineCoreOutput[] {
    const failed = this.#running.filter((sequence) => this.#imageHolds.awaitedBy(sequence)?.mmHash === mmHash);
    const outputs = failed.map((sequence) => this.#fail(sequence, error));
    this.#dropFinished();
    return outputs;
  }

  /** Whether an unfinished sequence has the image. */
  usesImage(mmHash: string): boolean {
    const uses = ({ images }: Sequence): boolean => images.some((image) => image.mmHash === mmHash);
    return this.#running.some(uses) || [...this.#waiting].some(uses);
  }

  /**
   * Makes steps smaller after the largest run without memory, and larger again after successes. A run that cannot be made
   * smaller has ended its sequence, and says nothing about the steps of others.
   */
  #limitSteps(results: StepResults): void {
    let hasFailed = false;
    let largest: Extract<StepResult, { kind: "out_of_memory" }> | null = null;
    for (const result of results.values()) {
      if (result.kind !== "out_of_memory") continue;
      hasFailed = true;
      if (!this.#canShrink(result.run)) continue;
      if (largest === null || result.run.numTokens > largest.run.numTokens) largest = result;
    }
    if (largest !== null) this.#stepLimit?.shrink(largest.run, largest.error.message);
    if (hasFailed) return;
    this.#stepLimit?.noteSuccess(this.#options.maxNumBatchedTokens, this.#running.length + this.#waiting.length);
  }

  #canShrink(run: FailedRun): boolean {
    this.#stepLimit ??= new StepLimit(this.#options.fewestStepTokens ?? 1);
    return this.#stepLimit.canShrink(run);
  }

  #advance(sequence: Sequence, numTokens: number, results: StepResults, outputs: EngineCoreOutput[]): void {
    if (sequence.finishReason !== null) return;
    const result = results.get(sequence);
    if (result?.kind === "out_of_memory" && this.#canShrink(result.run)) {
      this.#running.splice(this.#running.indexOf(sequence), 1);
      return this.#preempt(sequence, result.keepsTokens);
    }
    sequence.numComputedTokens += numTokens;
    this.#countPromptTokens(sequence);
    this.#imageHolds.release(sequence, (image) => endTokenOf(image) <= sequence.numComputedTokens);
    if (result === undefined || result.kind === "sampled" || result.kind === "pooled") {
      this.#kvManager.keepComputed(sequence);
    }
    switch (result?.kind) {
      case undefined:
        return;
      case "failed":
      case "out_of_memory":
        outputs.push(this.#fail(sequence, result.error));
        return;
      case "pooled":
        this.#finish(sequence, "stop");
        outputs.push({ ...createOutput(sequence), pooled: result.values, scheduledMs: sequence.scheduledMs });
        return;
      case "sampled": {
        sequence.outputTokenIds.push(result.tokenId);
        this.#numGenerationTokens++;
        this.#drafts?.follow(sequence);
        const stop = checkStop(sequence, this.#options);
        if (stop !== null) this.#finish(sequence, stop.finishReason);
        outputs.push({
          ...createOutput(sequence),
          tokenIds: [result.tokenId],
          logprobs: result.logprobs === null ? null : [result.logprobs],
          promptLogprobs: result.promptLogprobs,
          stopReason: stop?.stopReason ?? null,
          ...(sequence.outputTokenIds.length === 1 && { scheduledMs: sequence.scheduledMs }),
        });
        return;
      }
      default:
        result satisfies never;
    }
  }

  #createBudget(): TokenBudget {
    const { maxNumBatchedTokens, enoughPromptTokens = Infinity } = this.#options;
    const { maxTokens } = this.#stepLimit ?? noStepLimit;
    return new TokenBudget(Math.min(maxNumBatchedTokens, maxTokens), enoughPromptTokens);
  }

  /** Decodes come in order of urgency, so that a sequence is never preempted after it was scheduled here. */
  #scheduleDecodes(maxNumTokens: number, transfers: SlotTransfer[]): Sequence[] {
    const decodes: Sequence[] = [];
    for (let index = 0; index < this.#running.length && decodes.length < maxNumTokens; index++) {
      const sequence = this.#running[index]!;
      if (sequence.isPrefilling || !this.#makeRoom(sequence)) continue;
      transfers.push(...this.#kvManager.reserve(sequence, sequence.numComputedTokens + 1));
      decodes.push(sequence);
    }
    return decodes;
  }

  /** Preempts less urgent sequences until the sequence has room for a token. Returns false if it had to go itself. */
  #makeRoom(sequence: Sequence): boolean {
    while (this.#kvManager.numTokensWithRoom(sequence) < this.#chunks.fewestTokens(sequence)) {
      const leastUrgent = this.#running.at(-1);
      invariant(
        leastUrgent !== undefined && this.#running.length > 1,
        `the KV cache has no room for request ${sequence.requestId} alone`,
      );
      this.#running.pop();
      this.#preempt(leastUrgent);
      if (leastUrgent === sequence) return false;
    }
    return true;
  }

  /** @param keepsTokens See `KvManager.release`. */
  #preempt(sequence: Sequence, keepsTokens = true): void {
    this.#numPreemptions++;
    this.#drafts?.end(sequence);
    this.#kvManager.release(sequence, keepsTokens);
    this.#imageHolds.release(sequence, () => true);
    sequence.preempt();
    this.#waiting.add(sequence);
  }

  /**
   * Appends the first chunks of waiting sequences, and leaves room for `numReserved` sequences. Returns the transfers to
   * perform before the chunks.
   */
  #admitWaiting(budget: TokenBudget, prefills: PrefillChunk[], numReserved = 0): SlotTransfer[] {
    const transfers: SlotTransfer[] = [];
    const { maxSequences } = this.#stepLimit ?? noStepLimit;
    const passedOver = new Set<Sequence>();
    while (
      budget.promptTokensLeft > 0 &&
      this.#kvManager.numFreeSequences > numReserved &&
      this.#running.length < maxSequences
    ) {
      const sequence = this.#waiting.next(passedOver);
      if (sequence === null) break;
      const placement = this.#place(sequence);
      if (placement === "passed-over" && passedOver.size < MAX_PASSED_OVER) {
        passedOver.add(sequence);
        continue;
      }
      if (placement === null || placement === "passed-over") break;
      sequence.skipCachedTokens(placement.numCachedTokens);
      sequence.chunkEnds = placement.chunkEnds ?? [];
      const chunk = this.#chunks.plan(sequence, budget.promptTokensLeft);
      if (chunk === null && this.#imageHolds.awaitedBy(sequence) === null) {
        this.#imageHolds.release(sequence, () => true);
        sequence.skipCachedTokens(0);
        break;
      }
      this.#waiting.take(sequence);
      transfers.push(...this.#admit(sequence, placement));
      // A prompt that begins with an image runs, so that its image is encoded and later requests are admitted.
      if (chunk === null) continue;
      budget.takePrompt(chunk);
      transfers.push(...this.#reserve(chunk));
      prefills.push(chunk);
    }
    return transfers;
  }

  /**
   * Finds room for a waiting sequence; null if the queue waits for room or for its prefix. A prefix whose sequence waits
   * for an image may take seconds, so the queue does not wait for it: a request computes it itself, or, if it needs an
   * image that is not encoded either, is passed over by the requests behind it.
   */
  #place(sequence: Sequence): KvPlacement | "passed-over" | null {
    const placement = this.#kvManager.tryPlace(sequence);
    if (placement !== null) return placement;
    const stalled = new Set(this.#running.filter((running) => this.#imageHolds.awaitedBy(running) !== null));
    const alone = stalled.size === 0 ? null : this.#kvManager.tryPlace(sequence, stalled);
    return alone !== null && this.#imageHolds.needsEncoding(sequence) ? "passed-over" : alone;
  }

  /** Returns the transfers to perform before its first chunk. */
  #admit(sequence: Sequence, placement: KvPlacement): readonly SlotTransfer[] {
    const transfers = placement.take();
    insertByUrgency(this.#running, sequence);
    this.#countPromptTokens(sequence);
    if (sequence.numPreemptions > 0) return transfers;
    sequence.scheduledMs = epochMs();
    this.#numPrefixCacheHits += placement.numCachedTokens;
    if (this.#kvManager.looksUpPrefix(sequence)) this.#numPrefixCacheQueries += sequence.numPromptTokens;
    return transfers;
  }

  #countPromptTokens(sequence: Sequence): void {
    const numTokens = Math.min(sequence.numComputedTokens, sequence.numPromptTokens);
    this.#numPromptTokens += Math.max(numTokens - sequence.numCountedTokens, 0);
    sequence.numCountedTokens = Math.max(numTokens, sequence.numCountedTokens);
  }

  /** Appends the sequence's next chunk, if any of it can be computed in this step. Returns the transfers before it. */
  #schedulePrefill(sequence: Sequence, budget: TokenBudget, prefills: PrefillChunk[]): readonly SlotTransfer[] {
    const room = Math.min(budget.promptTokensLeft, this.#kvManager.numTokensWithRoom(sequence));
    const chunk = this.#chunks.plan(sequence, room);
    if (chunk === null) return [];
    budget.takePrompt(chunk);
    prefills.push(chunk);
    return this.#reserve(chunk);
  }

  #reserve({ sequence, firstToken, numTokens }: PrefillChunk): readonly SlotTransfer[] {
    return this.#kvManager.reserve(sequence, firstToken + numTokens);
  }

  get #awaitedImage(): ImageFeature | null {
    for (const sequence of this.#running) {
      const image = this.#imageHolds.awaitedBy(sequence);
      if (image !== null) return image;
    }
    return null;
  }

  #fail(sequence: Sequence, error: EngineError): EngineCoreOutput {
    this.#finish(sequence, "error");
    const { code, message } = error.code === "out_of_memory" ? aloneError(sequence, error) : error;
    return { ...createOutput(sequence), error: { code, message } };
  }

  #finish(sequence: Sequence, finishReason: FinishReason): void {
    sequence.finishReason = finishReason;
    this.#imageHolds.release(sequence, () => true);
    this.#drafts?.end(sequence);
    // The KV of a failed run is not reused.
    this.#kvManager.release(sequence, finishReason !== "error");
  }

  #dropFinished(): void {
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
