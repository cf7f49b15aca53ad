/**
 * The scheduler over a paged KV cache. A small stand-in for a model keeps one number per token position in its blocks,
 * which depends on everything before it, and chooses the next token by it. Wrong reuse changes the answers.
 */
import { EngineError } from "../../../engine/contract/errors.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import type { StepResult, StepResults } from "../../../engine/core/step-results.ts";
import { BlockKvManager } from "../../../engine/kv/block-kv-manager.ts";
import { SCRATCH_BLOCK_ID } from "../../../engine/kv/block-pool.ts";
import { blockCapacity } from "../../../engine/kv/plan-blocks.ts";
import { isLastChunk } from "../../../engine/scheduler/scheduler-output.ts";
import type { SchedulerOutput } from "../../../engine/scheduler/scheduler-output.ts";
import { Scheduler } from "../../../engine/scheduler/scheduler.ts";
import type { Sequence } from "../../../engine/scheduler/sequence.ts";
import type { EngineCoreOutput } from "../../../engine/thread/messages.ts";
import { EncoderCache } from "../../../engine/vision/encoder-cache.ts";
import { OrderCheck } from "./order-check.ts";

const blockSize = 4;

interface PagedOverrides {
  readonly numBlocks?: number;
  readonly maxNumSequences?: number;
  readonly maxNumBatchedTokens?: number;
  readonly enablePrefixCaching?: boolean;
  readonly encodesInBackground?: boolean;
}

interface Span {
  readonly sequence: Sequence;
  readonly firstToken: number;
  readonly numTokens: number;
}

/** Mutable: a scheduler, and a model that keeps its state in the blocks. */
export class PagedSimulation {
  readonly kvManager: BlockKvManager;
  readonly scheduler: Scheduler;
  readonly encoderCache = new EncoderCache(64);
  /** [numBlocks, blockSize] */
  readonly #state: Float64Array;
  readonly outputs = new Map<string, EngineCoreOutput[]>();
  /** Spans that were computed: request, first token, end token. */
  readonly computed: [string, number, number][] = [];
  /** Requests whose next run fails. */
  readonly failing = new Set<string>();
  /** Steps to come for which the device has no memory, unless they have one token. */
  numStepsWithoutMemory = 0;
  numPreemptedWithoutMemory = 0;
  /** Sequences that have been scheduled; those with a block table hold its blocks. */
  readonly #sequences = new Set<Sequence>();
  readonly #order = new OrderCheck();

  constructor(overrides: PagedOverrides = {}) {
    const { numBlocks = 17, maxNumSequences = 4, maxNumBatchedTokens = 16, enablePrefixCaching = true } = overrides;
    this.kvManager = new BlockKvManager({
      capacity: blockCapacity(blockSize, numBlocks),
      maxNumSequences,
      enablePrefixCaching,
    });
    this.scheduler = new Scheduler({
      maxNumBatchedTokens,
      maxNumWaiting: 100,
      kvManager: this.kvManager,
      encoderCache: this.encoderCache,
      encodesInBackground: overrides.encodesInBackground,
      eosTokenIds: new Set(),
      maxModelLen: (numBlocks - 1) * blockSize,
    });
    this.#state = new Float64Array(numBlocks * blockSize).fill(Number.NaN);
  }

  add(request: EngineRequest): void {
    this.outputs.set(request.requestId, []);
    this.scheduler.add(request);
    this.#order.add(request);
  }

  abort(requestId: string): void {
    this.#record(this.scheduler.abort([requestId]));
  }

  step(): void {
    const scheduled = this.scheduler.schedule();
    this.#order.check(scheduled);
    const spans = [
      ...scheduled.decodes.map((sequence) => ({ sequence, firstToken: sequence.numComputedTokens, numTokens: 1 })),
      ...scheduled.prefills,
    ];
    for (const { imagesToEncode } of scheduled.prefills) {
      for (const { mmHash } of imagesToEncode) this.encoderCache.store(mmHash, new Float32Array(1));
    }
    for (const { sequence } of spans) this.#sequences.add(sequence);
    this.#requireUnshared(spans);
    if (this.numStepsWithoutMemory > 0 && spans.length > 0) {
      this.numStepsWithoutMemory--;
      return this.#failWithoutMemory(scheduled, spans);
    }
    this.#update(scheduled, this.#computeAll(spans));
  }

  #computeAll(spans: readonly Span[]): Map<Sequence, StepResult> {
    const results = new Map<Sequence, StepResult>();
    for (const { sequence, firstToken, numTokens } of spans) {
      this.computed.push([sequence.requestId, firstToken, firstToken + numTokens]);
      if (this.failing.delete(sequence.requestId)) {
        results.set(sequence, { kind: "failed", error: new EngineError("runtime_failed", "The run failed.") });
        continue;
      }
      const tokenId = tokenAfter(this.#compute(sequence, firstToken, firstToken + numTokens), sequence.seed);
      const isEnded = !sequence.isPrefilling || isLastChunk({ sequence, firstToken, numTokens, imagesToEncode: [] });
      if (isEnded) results.set(sequence, { kind: "sampled", tokenId, logprobs: null, promptLogprobs: null });
    }
    return results;
  }

  runToEnd(maxSteps = 10_000): void {
    for (let step = 0; this.scheduler.hasUnfinished; step++) {
      if (step === maxSteps) throw new Error(`Requests are unfinished after ${maxSteps} steps.`);
      this.step();
    }
  }

  tokensOf(requestId: string): number[] {
    return this.outputs.get(requestId)!.flatMap(({ tokenIds }) => tokenIds);
  }

  /** The run may have written anything into its places. */
  #failWithoutMemory(scheduled: SchedulerOutput, spans: readonly Span[]): void {
    const numTokens = spans.reduce((sum, span) => sum + span.numTokens, 0);
    const run = { numTokens, numSequences: spans.length };
    // A sequence that cannot be computed alone would end.
    if (spans.length === 1 && numTokens === 1) return this.#update(scheduled, this.#computeAll(spans));
    const error = new EngineError("out_of_memory", "CUDA failure 2: out of memory");
    const results = new Map<Sequence, StepResult>();
    for (const { sequence, firstToken, numTokens: length } of spans) {
      for (let token = firstToken; token < firstToken + length; token++) this.#state[placeOf(sequence, token)] = NaN;
      results.set(sequence, { kind: "out_of_memory", error, run, keepsTokens: true });
    }
    this.#update(scheduled, results);
    this.numPreemptedWithoutMemory += spans.length;
    this.#order.notePreempted(spans.map(({ sequence }) => sequence));
  }

  #update(scheduled: SchedulerOutput, results: StepResults): void {
    this.#record(this.scheduler.update(scheduled, results));
    this.#requireAccounted();
  }

  /** Throws unless each block that is written to is held by the one sequence that writes. */
  #requireUnshared(spans: readonly Span[]): void {
    for (const { sequence, firstToken, numTokens } of spans) {
      const firstBlock = Math.floor(firstToken / blockSize);
      const written = new Set(sequence.blockTable.slice(firstBlock, Math.ceil((firstToken + numTokens) / blockSize)));
      const others = [...this.#sequences].filter((other) => other !== sequence);
      const isShared = others.some(({ blockTable }) => blockTable.some((blockId) => written.has(blockId)));
      if (isShared || sequence.blockTable.includes(SCRATCH_BLOCK_ID)) {
        throw new Error(
          `Request ${sequence.requestId} writes to blocks that are not its own: ${[...written].join(", ")}.`,
        );
      }
    }
  }

  /** Throws unless the pool counts as held the blocks of all block tables, and no others. */
  #requireAccounted(): void {
    const { capacity, usage } = this.kvManager;
    const held = new Set([...this.#sequences].flatMap(({ blockTable }) => blockTable));
    const numCounted = Math.round(usage * (capacity.numBlocks - 1));
    if (held.size !== numCounted) throw new Error(`${held.size} blocks are in tables; ${numCounted} count as held.`);
  }

  #compute(sequence: Sequence, firstToken: number, endToken: number): number {
    let state = firstToken === 0 ? 1 : this.#state[placeOf(sequence, firstToken - 1)];
    for (const [index, tokenId] of sequence.tokenIdsBetween(firstToken, endToken).entries()) {
      state = nextState(state!, tokenId, sequence.images, firstToken + index);
      this.#state[placeOf(sequence, firstToken + index)] = state;
    }
    return state!;
  }

  #record(outputs: readonly EngineCoreOutput[]): void {
    for (const output of outputs) this.outputs.get(output.requestId)!.push(output);
    this.#order.drop(outputs.filter(({ finishReason }) => finishReason !== null));
  }
}

function placeOf({ blockTable }: Sequence, token: number): number {
  return blockTable[Math.floor(token / blockSize)]! * blockSize + (token % blockSize);
}

/** Differs between choices of one prompt. */
function tokenAfter(state: number, seed: number): number {
  return (state + seed * 13) % 997;
}

function nextState(state: number, tokenId: number, images: EngineRequest["images"], place: number): number {
  const image = images.find(
    ({ placeholder }) => place >= placeholder.offset && place < placeholder.offset + placeholder.length,
  );
  const pixel = image === undefined ? 0 : image.mmHash.charCodeAt(0) + place - image.placeholder.offset;
  return (state * 31 + tokenId * 7 + pixel + 3) % 997;
}

/** The tokens that a request gets alone, computed without any cache. */
export function expectedTokens({ promptTokenIds, images, samplingParams, seed }: EngineRequest): number[] {
  let state = 1;
  const outputTokenIds: number[] = [];
  promptTokenIds.forEach((tokenId, place) => (state = nextState(state, tokenId, images, place)));
  while (outputTokenIds.length < samplingParams.maxTokens!) {
    const tokenId = tokenAfter(state, seed);
    outputTokenIds.push(tokenId);
    state = nextState(state, tokenId, images, promptTokenIds.length + outputTokenIds.length - 1);
  }
  return outputTokenIds;
}
