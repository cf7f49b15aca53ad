/**
 * The contract of every logits processor, the engine's own and yours. Call it in a file of Vitest or of `node --test`;
 * fast-check must be installed.
 *
 *     import { testLogitsProcessor } from "fovea/testing";
 *     testLogitsProcessor("TargetToken", {
 *       create: () => new TargetToken(config, "cpu", {}),
 *       using: [{ extraArgs: { target_token: 3 } }, { extraArgs: { target_token: 7 } }],
 *     });
 */
import assert from "node:assert/strict";
import * as fc from "fast-check";

import { createSamplingParams } from "../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../engine/contract/sampling-params.ts";
import type { ThinkingBudget } from "../../engine/core/engine-request.ts";
import { InputBatch } from "../../engine/core/input-batch.ts";
import type { SequenceBatchUpdate } from "../../engine/sampling/built-in/added-sequence.ts";
import type { LogitsProcessor } from "../../engine/sampling/contract/logits-processor.ts";
import { takeReturned } from "../../engine/sampling/contract/take-returned.ts";
import { maximum } from "../../engine/sampling/row-operations.ts";
import { StepLogits } from "../../engine/sampling/step-logits.ts";
import { Sequence } from "../../engine/scheduler/sequence.ts";
import { describe, test } from "./test-runner.ts";

export interface LogitsProcessorFixture {
  /** Creates a new instance, like an engine does. */
  readonly create: () => LogitsProcessor;
  /** Sampling parameters of requests that use the processor, one kind each. Token ids are below `vocabSize`. */
  readonly using: readonly Partial<SamplingParams>[];
  /**
   * Sampling parameters of requests that do not use it; empty for a processor that acts on all. Default: no parameters.
   */
  readonly notUsing?: readonly Partial<SamplingParams>[];
  /** Logits in a row. Default 48. */
  readonly vocabSize?: number;
  /** Bad words of every request that uses the processor, as the engine tokenizes them. Default none. */
  readonly badWordsTokenIds?: readonly (readonly number[])[];
  /** Tokens that no output of a request that uses the processor starts with. Default none. */
  readonly beginSuppressedTokenIds?: readonly number[];
  /** Limit of the thinking of every request that uses the processor. Default none. */
  readonly thinkingBudget?: ThinkingBudget;
}

const NUM_SLOTS = 9;
const MAX_STEPS = 14;

/** What happens before a step to `NUM_SLOTS` clients, each with one request at a time. */
interface StepPlan {
  /** Clients whose request is computed in this step. The other requests are paused and keep their output. */
  readonly present: readonly number[];
  /** Clients whose request has ended and that send another. */
  readonly renewed: readonly number[];
  /** By client: rows are swapped until these ascend. */
  readonly groups: readonly number[];
}

const clients = Array.from({ length: NUM_SLOTS }, (_, client) => client);
const stepPlan: fc.Arbitrary<StepPlan> = fc.record({
  present: fc.shuffledSubarray(clients),
  renewed: fc.subarray(clients, { maxLength: 3 }),
  groups: fc.array(fc.nat(2), { minLength: NUM_SLOTS, maxLength: NUM_SLOTS }),
});

/** Registers the tests of a logits processor with the test runner that runs the calling file. */
export function testLogitsProcessor(name: string, fixture: LogitsProcessorFixture): void {
  const { create, using, notUsing = [{}], vocabSize = 48, badWordsTokenIds = [] } = fixture;
  const { beginSuppressedTokenIds, thinkingBudget } = fixture;
  const kinds = [...using, ...notUsing];
  let numSequences = 0;

  const usingParams = new WeakSet<SamplingParams>();
  const isUsing = ({ samplingParams }: Sequence): boolean => usingParams.has(samplingParams);
  /** A new request; those of kinds below `using.length` use the processor. */
  const join = (kind: number): Sequence => {
    const samplingParams = createSamplingParams(kinds[kind]);
    if (kind < using.length) usingParams.add(samplingParams);
    return new Sequence({
      requestId: `${numSequences++}`,
      promptTokenIds: [kind % vocabSize, (kind * 7 + 3) % vocabSize],
      images: [],
      samplingParams,
      badWordsTokenIds: kind < using.length ? badWordsTokenIds : [],
      grammar: null,
      ...(kind < using.length && beginSuppressedTokenIds && { beginSuppressedTokenIds }),
      ...(kind < using.length && thinkingBudget && { thinkingBudget }),
      cacheSalt: null,
      seed: 0,
    });
  };

  /** One row of logits; depends only on the sequence and its position. */
  const rawRow = ({ requestId, outputTokenIds }: Sequence): Float32Array =>
    Float32Array.from({ length: vocabSize }, (_, tokenId) =>
      Math.fround(8 * Math.sin(Number(requestId) * 12.9 + outputTokenIds.length * 78.2 + tokenId * 3.7)),
    );
  const nextToken = ({ requestId, outputTokenIds }: Sequence): number =>
    (Number(requestId) * 5 + outputTokenIds.length * outputTokenIds.length * 3) % vocabSize;

  /** The rows after the processor. */
  const applyTo = (processor: LogitsProcessor, sequences: readonly Sequence[]): Float32Array[] => {
    if (sequences.length === 0) return [];
    const logits = new StepLogits(sequences.length, vocabSize);
    logits.numRequests = sequences.length;
    sequences.forEach((sequence, rowIndex) => logits.row(rowIndex).set(rawRow(sequence)));
    takeReturned(logits, processor.apply(logits));
    return sequences.map((_, rowIndex) => logits.row(rowIndex));
  };

  /** An instance that has seen only this request, without a pause. */
  const createLone = (sequence: Sequence): LogitsProcessor => {
    const processor = create();
    const batch = new InputBatch();
    batch.replace([sequence]);
    processor.updateState(batch.takeBatchUpdate());
    return processor;
  };

  /** Plays the plans and calls `visit` with each step's rows. */
  const play = (plans: readonly StepPlan[], visit: (sequence: Sequence, row: Float32Array) => void): void => {
    const processor = create();
    const batch = new InputBatch();
    const sequences = clients.map((client) => join(client % kinds.length));
    for (const { present, renewed, groups } of plans) {
      for (const client of renewed) sequences[client] = join((client + numSequences) % kinds.length);
      batch.replace(present.map((client) => sequences[client]!));
      batch.groupBy((sequence) => groups[sequences.indexOf(sequence)]!);
      processor.updateState(batch.takeBatchUpdate());
      const rows = applyTo(processor, batch.sequences);
      batch.sequences.forEach((sequence, rowIndex) => visit(sequence, rows[rowIndex]!));
      for (const sequence of batch.sequences) sequence.outputTokenIds.push(nextToken(sequence));
    }
  };

  describe(`the logits processor contract: ${name}`, () => {
    test("gives each row the logits that its request gets alone, while others join, end, pause, move and swap", () => {
      fc.assert(
        fc.property(fc.array(stepPlan, { maxLength: MAX_STEPS }), (plans) => {
          const lone = new Map<Sequence, LogitsProcessor>();
          play(plans, (sequence, row) => {
            const known = lone.get(sequence);
            known?.updateState(null);
            const processor = known ?? createLone(sequence);
            lone.set(sequence, processor);
            const [expected] = applyTo(processor, [sequence]);
            assert.deepEqual(changedTokens(row, expected!), []);
          });
        }),
      );
    });

    test("changes the logits of no request that does not use it", () => {
      const changed = { using: 0, notUsing: 0 };
      const everyone = { present: clients, renewed: [], groups: clients.map(() => 0) };
      play(
        Array.from({ length: MAX_STEPS }, () => everyone),
        (sequence, row) => {
          const numChanged = changedTokens(row, rawRow(sequence)).length;
          changed[isUsing(sequence) ? "using" : "notUsing"] += numChanged;
        },
      );
      assert.equal(changed.notUsing, 0, "logits of requests that do not use the processor have changed");
      assert.ok(changed.using > 0, "no logit of a request that uses the processor has changed");
    });

    test("keeps the most likely token if it claims to be argmax-invariant", () => {
      if (!create().isArgmaxInvariant()) return;
      const everyone = { present: clients, renewed: [], groups: clients.map(() => 0) };
      play([everyone, everyone, everyone], (sequence, row) => {
        assert.equal(argmax(row), argmax(rawRow(sequence)));
      });
    });

    test("accepts a row that is removed and then filled by a move", () => {
      const processor = create();
      const [a, b, c, d, e] = clients.map((client) => join(client % kinds.length));
      processor.updateState(updateOf({ batchSize: 4, added: [a!, b!, c!, d!] }));
      const update = updateOf({ batchSize: 3, added: [e!] });
      processor.updateState({
        ...update,
        removed: [2],
        moved: [
          { from: 3, to: 2, directionality: "unidirectional" },
          { from: 0, to: 1, directionality: "swap" },
        ],
      });
      const sequences = [b!, e!, d!];
      applyTo(processor, sequences).forEach((row, index) => {
        const [expected] = applyTo(createLone(sequences[index]!), [sequences[index]!]);
        assert.deepEqual(changedTokens(row, expected!), []);
      });
    });

    test("keeps no state of a batch that became empty", () => {
      const processor = create();
      const [a, b] = using.map((_, kind) => join(kind)).concat(join(0));
      processor.updateState(updateOf({ batchSize: 2, added: [a!, b!] }));
      processor.updateState({ batchSize: 0, removed: [1, 0], added: [], moved: [] });
      processor.updateState(null);
      const others = notUsing.map((_, kind) => join(using.length + kind));
      processor.updateState(updateOf({ batchSize: others.length, added: others }));
      applyTo(processor, others).forEach((row, index) => {
        assert.deepEqual(changedTokens(row, rawRow(others[index]!)), []);
      });
    });
  });
}

/** Adds the sequences as the first rows. */
function updateOf(update: { readonly batchSize: number; readonly added: readonly Sequence[] }): SequenceBatchUpdate {
  const added = update.added.map(({ samplingParams: params, ...sequence }, index) => ({ ...sequence, index, params }));
  return { batchSize: update.batchSize, removed: [], added, moved: [] };
}

/** Ids of the tokens whose logits differ; NaN equals itself, and -0 is not 0. */
function changedTokens(row: Float32Array, before: Float32Array): number[] {
  return [...row.keys()].filter((tokenId) => !Object.is(row[tokenId], before[tokenId]));
}

function argmax(row: Float32Array): number {
  return row.indexOf(maximum(row));
}
