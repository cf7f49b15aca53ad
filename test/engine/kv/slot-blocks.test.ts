/** Slots that share memory, over the real memory: a scheduler decides, and the test writes what a decoder would write. */
import * as fc from "fast-check";
import koffi from "koffi";
import { expect, test } from "vitest";

import { createKvCache } from "../../../engine/kv/create-kv-cache.ts";
import type { KvCache, KvSession } from "../../../engine/kv/kv-cache.ts";
import { KvSlots } from "../../../engine/kv/kv-slots.ts";
import { numBlocksOf, planSlotBlocks } from "../../../engine/kv/plan-slot-blocks.ts";
import { SlotBlocks } from "../../../engine/kv/slot-blocks.ts";
import { SlotKvManager } from "../../../engine/kv/slot-kv-manager.ts";
import { addressOf } from "../../../engine/runtime/ort-api.ts";
import { releasablePageBytes } from "../../../engine/runtime/page-memory.ts";
import type { SchedulerOutput } from "../../../engine/scheduler/scheduler-output.ts";
import { Scheduler } from "../../../engine/scheduler/scheduler.ts";
import type { Sequence } from "../../../engine/scheduler/sequence.ts";
import { EncoderCache } from "../../../engine/vision/encoder-cache.ts";
import { createRequest, resultsOf } from "../scheduler/create-scheduler.ts";

const numSlots = 12;
const maxLen = 300;
const shape = { numLayers: 2, numKvHeads: 2, headDim: 80, kvElementType: "float32" } as const;
const pageBytes = releasablePageBytes()!;
const mincore = koffi.load(null).func("mincore", "int", ["void *", "size_t", "void *"]);
/** Fewer than a block has tokens. */
const CHECKED_EVERY = 7;
const onHost: KvSession = {
  deviceMemory: null,
  allocateTensor: () => expect.fail("pages are allocated without the session"),
};
/** Values of the keys, or the values, of one head. */
const headSize = shape.headDim;
const blockBytes = 2 * shape.numLayers * shape.numKvHeads * pageBytes;
/** One sequence of full length, and a block of each other slot. */
const fewestBlocks = Math.ceil((maxLen * headSize * 4) / pageBytes) + numSlots - 1;

function planOf(numBlocks: number, over: typeof shape = shape, maxNumSequences = numSlots, length = maxLen) {
  const options = { maxNumSequences, maxLen: length, pageBytes, totalMemoryBytes: 2 ** 34 };
  return planSlotBlocks(over, options, { weightBytes: 0, machineBytes: 2 ** 34, maxKvBytes: numBlocks * blockBytes });
}

/** Pages that hold bytes of the cache, by the system's own count. */
function residentBytes(cache: KvCache): number {
  using view = cache.view(0, numSlots);
  let numPages = 0;
  for (const { data, byteLength } of [...view.keys, ...view.values]) {
    const isResident = new Uint8Array(Math.ceil(byteLength / pageBytes));
    expect(mincore(addressOf(data), byteLength, isResident)).toBe(0);
    numPages += isResident.filter((flags) => (flags & 1) === 1).length;
  }
  return numPages * pageBytes;
}

/** Writes and reads a value for each token of a slot: the first and the last number of each head, in keys and values. */
class TokenMemory {
  readonly #cache: KvCache;
  readonly #kvSlots: KvSlots;

  constructor(cache: KvCache, kvSlots: KvSlots) {
    this.#cache = cache;
    this.#kvSlots = kvSlots;
  }

  write(slot: number, position: number, value: number): void {
    this.#visit(slot, position, (data, first) => {
      data[first] = value;
      data[first + headSize - 1] = value;
    });
  }

  expect(slot: number, position: number, value: number): void {
    this.#visit(slot, position, (data, first) => {
      if (data[first] === value && data[first + headSize - 1] === value) return;
      expect.fail(`slot ${slot} has ${data[first]} at ${position}, not ${value}`);
    });
  }

  perform({ transfers }: SchedulerOutput): void {
    for (const transfer of transfers) {
      if (transfer.kind === "release") this.#cache.release!(transfer.slot, transfer.firstBlock);
      if (transfer.kind === "copy" || transfer.kind === "swap") this.#cache.transfer!(transfer);
      if (transfer.kind === "copy") this.#kvSlots.setNumKeptTokens(transfer.toSlot, transfer.numTokens);
    }
  }

  #visit(slot: number, position: number, visit: (data: Float32Array, first: number) => void): void {
    using view = this.#cache.view(slot, 1);
    for (const { data, shape: viewShape } of [...view.keys, ...view.values]) {
      const length = viewShape[2]!;
      for (let head = 0; head < shape.numKvHeads; head++) {
        visit(data as Float32Array, (head * length + position) * headSize);
      }
    }
  }
}

const tokenAt = ({ promptTokenIds, outputTokenIds }: Sequence, position: number): number =>
  position < promptTokenIds.length ? promptTokenIds[position]! : outputTokenIds[position - promptTokenIds.length]!;

test("no load takes more pages than the budget, loses a token of a running sequence or a sequence", async () => {
  const request = fc.record({
    /** Prompts of the same kind share their tokens. */
    kind: fc.nat(2),
    numPromptTokens: fc.constantFrom(5, 30, 90, 200),
    maxTokens: fc.constantFrom(1, 10, 90),
    priority: fc.constantFrom(0, 0, 1),
    numSteps: fc.nat(12),
    isAborted: fc.nat(6).map((value) => value === 0),
  });
  const settings = fc.record({ numMore: fc.constantFrom(0, 4, 40), budget: fc.constantFrom(16, 128) });
  let numPreemptions = 0;
  let numHits = 0;
  let mostShared = 0;
  fc.assert(
    fc.property(fc.array(request, { minLength: 10, maxLength: 30 }), settings, (requests, { numMore, budget }) => {
      const plan = planOf(fewestBlocks + numMore)!;
      expect(plan.numSlots).toBe(numSlots);
      const kvSlots = new KvSlots(numSlots, maxLen);
      const blocks = new SlotBlocks(kvSlots, plan, null);
      using cache = createKvCache(onHost, shape, { numSlots, maxLen }, plan);
      const memory = new TokenMemory(cache, kvSlots);
      const scheduler = new Scheduler({
        maxNumBatchedTokens: budget,
        maxNumWaiting: 100,
        kvManager: new SlotKvManager(kvSlots, { canTransfer: true }, blocks),
        encoderCache: new EncoderCache(0),
        eosTokenIds: new Set(),
        maxModelLen: maxLen,
      });
      const ended = new Set<string>();
      const step = (): void => {
        const scheduled = scheduler.schedule();
        memory.perform(scheduled);
        const spans = [
          ...scheduled.prefills.map(({ sequence, firstToken, numTokens }) => ({
            sequence,
            firstToken,
            endToken: firstToken + numTokens,
          })),
          ...scheduled.decodes.map((sequence) => ({
            sequence,
            firstToken: sequence.numComputedTokens,
            endToken: sequence.numComputedTokens + 1,
          })),
        ];
        for (const { sequence, firstToken, endToken } of spans) {
          const slot = sequence.kvSlot!;
          for (let position = firstToken - 1; position >= 0; position -= CHECKED_EVERY) {
            memory.expect(slot, position, tokenAt(sequence, position));
          }
          for (let position = firstToken; position < endToken; position++) {
            memory.write(slot, position, tokenAt(sequence, position));
          }
          kvSlots.setNumKeptTokens(slot, endToken);
        }
        // The rows of all other slots, as a run over them writes them.
        for (let slot = 0; slot < numSlots; slot++) memory.write(slot, kvSlots.numKeptTokens(slot), -1);
        expect(blocks.numHeld).toBeLessThanOrEqual(plan.capacity.numBlocks);
        for (const output of scheduler.update(scheduled, resultsOf(scheduled))) {
          if (output.finishReason !== null) ended.add(output.requestId);
        }
        mostShared = Math.max(mostShared, scheduler.stats.numRequestsRunning);
      };
      requests.forEach(({ kind, numPromptTokens, maxTokens, priority, numSteps, isAborted }, index) => {
        const promptTokenIds = Array.from({ length: numPromptTokens }, (_, position) => 1000 * kind + position);
        const samplingParams = { maxTokens, ignoreEos: true };
        scheduler.add(createRequest(`${index}`, { promptTokenIds, priority, samplingParams }));
        for (let count = 0; count < numSteps && scheduler.hasUnfinished; count++) step();
        if (!isAborted) return;
        for (const { requestId } of scheduler.abort([`${index}`])) ended.add(requestId);
      });
      let numSteps = 0;
      while (scheduler.hasUnfinished) {
        step();
        expect(numSteps++).toBeLessThan(20_000);
      }
      expect(ended.size).toBe(requests.length);
      expect(residentBytes(cache)).toBeLessThanOrEqual(plan.totalBytes);
      expect(scheduler.stats.kvCacheUsage).toBe(0);
      numPreemptions += scheduler.stats.numPreemptions;
      numHits += scheduler.stats.numPrefixCacheHits;
    }),
    { numRuns: 15, seed: 4 },
  );
  expect(numPreemptions).toBeGreaterThan(0);
  expect(numHits).toBeGreaterThan(0);
  // Three fit at full length.
  expect(mostShared).toBeGreaterThan(3);
});

test("a token takes a page of each head, and a slot gives all but its first block back", () => {
  const plan = planOf(fewestBlocks)!;
  using cache = createKvCache(onHost, shape, { numSlots, maxLen }, plan);
  const memory = new TokenMemory(cache, new KvSlots(numSlots, maxLen));
  expect(residentBytes(cache)).toBe(0);
  memory.write(3, 0, 1);
  expect(residentBytes(cache)).toBe(blockBytes);
  for (let position = 0; position < maxLen; position++) memory.write(3, position, position);
  expect(residentBytes(cache)).toBe(numBlocksOf(plan, maxLen) * blockBytes);
  cache.release!(3, 1);
  expect(residentBytes(cache)).toBe(blockBytes);
  memory.expect(3, 11, 11);
  // 12.8 tokens of 320 bytes fill a page of 4096.
  memory.expect(3, 13, 0);
});
