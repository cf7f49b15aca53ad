/**
 * What every logits processor holds to: its own, the engine's and yours. Call it in a Vitest file:
 *
 *     import { testLogitsProcessor } from "fovea/testing";
 *     testLogitsProcessor("TargetToken", {
 *       create: () => new TargetToken(config, "cpu", {}),
 *       using: [{ extraArgs: { target_token: 3 } }, { extraArgs: { target_token: 7 } }],
 *     });
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { InputBatch } from "../../engine/core/input-batch.ts";
import { Sequence } from "../../engine/scheduler/sequence.ts";
import { createSamplingParams } from "../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../engine/contract/sampling-params.ts";
import type { SequenceBatchUpdate } from "../../engine/sampling/built-in/added-sequence.ts";
import type { LogitsProcessor } from "../../engine/sampling/contract/logits-processor.ts";
import { maximum } from "../../engine/sampling/row-operations.ts";
import { StepLogits } from "../../engine/sampling/step-logits.ts";
import { takeReturned } from "../../engine/sampling/contract/take-returned.ts";

export interface LogitsProcessorFixture {
  /** A new instance, as an engine makes it. */
  readonly create: () => LogitsProcessor;
  /** What requests that use the processor say, each in a way of its own. Token ids lie below `vocabSize`. */
  readonly using: readonly Partial<SamplingParams>[];
  /** What requests say that do not use it; none for a processor that serves all. Default: one that says nothing. */
  readonly notUsing?: readonly Partial<SamplingParams>[];
  /** Length of a row. Default 48. */
  readonly vocabSize?: number;
  /** Bad words of every request that uses the processor, which the engine tokenises. Default none. */
  readonly badWordsTokenIds?: readonly (readonly number[])[];
}

const numSlots = 9;
const maxSteps = 14;

/** What happens before a step, to `numSlots` clients that each have one request at a time. */
interface StepPlan {
  /** Clients whose request is computed in this step; the others' pause, keeping their output. */
  readonly present: readonly number[];
  /** Clients whose request has ended and who come with another. */
  readonly renewed: readonly number[];
  /** By client: rows are swapped until these ascend. */
  readonly groups: readonly number[];
}

const clients = Array.from({ length: numSlots }, (_, client) => client);
const stepPlan: fc.Arbitrary<StepPlan> = fc.record({
  present: fc.shuffledSubarray(clients),
  renewed: fc.subarray(clients, { maxLength: 3 }),
  groups: fc.array(fc.nat(2), { minLength: numSlots, maxLength: numSlots }),
});

export function testLogitsProcessor(name: string, fixture: LogitsProcessorFixture): void {
  const { create, using, notUsing = [{}], vocabSize = 48, badWordsTokenIds = [] } = fixture;
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
      cacheSalt: null,
      seed: 0,
    });
  };

  /** One row of logits, which depends on nothing but the sequence and its position. */
  const rawRow = ({ requestId, outputTokenIds }: Sequence): Float32Array =>
    Float32Array.from({ length: vocabSize }, (_, tokenId) =>
      Math.fround(8 * Math.sin(Number(requestId) * 12.9 + outputTokenIds.length * 78.2 + tokenId * 3.7)),
    );
  const nextToken = ({ requestId, outputTokenIds }: Sequence): number =>
    (Number(requestId) * 5 + outputTokenIds.length * outputTokenIds.length * 3) % vocabSize;

  /** Rows as the processor leaves them. */
  const applyTo = (processor: LogitsProcessor, sequences: readonly Sequence[]): Float32Array[] => {
    if (sequences.length === 0) return [];
    const logits = new StepLogits(sequences.length, vocabSize);
    logits.numRequests = sequences.length;
    sequences.forEach((sequence, rowIndex) => logits.row(rowIndex).set(rawRow(sequence)));
    takeReturned(logits, processor.apply(logits));
    return sequences.map((_, rowIndex) => logits.row(rowIndex));
  };

  /** An instance that has never seen another request, nor a pause of this one. */
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
      batch.replace(present.map((client) => sequences[client]));
      batch.groupBy((sequence) => groups[sequences.indexOf(sequence)]);
      processor.updateState(batch.takeBatchUpdate());
      const rows = applyTo(processor, batch.sequences);
      batch.sequences.forEach((sequence, rowIndex) => visit(sequence, rows[rowIndex]));
      for (const sequence of batch.sequences) sequence.outputTokenIds.push(nextToken(sequence));
    }
  };

  describe(`the logits processor contract: ${name}`, () => {
    test("each row comes out as if its request were alone, whatever joins, ends, pauses, moves and swaps", () => {
      fc.assert(
        fc.property(fc.array(stepPlan, { maxLength: maxSteps }), (plans) => {
          const lone = new Map<Sequence, LogitsProcessor>();
          play(plans, (sequence, row) => {
            const known = lone.get(sequence);
            known?.updateState(null);
            const processor = known ?? createLone(sequence);
            lone.set(sequence, processor);
            const [expected] = applyTo(processor, [sequence]);
            expect(changedTokens(row, expected)).toEqual([]);
          });
        }),
      );
    });

    test("rows of requests that do not use it stay as they were, those of others do not all", () => {
      const changed = { using: 0, notUsing: 0 };
      const everyone = { present: clients, renewed: [], groups: clients.map(() => 0) };
      play(
        Array.from({ length: maxSteps }, () => everyone),
        (sequence, row) => {
          const numChanged = changedTokens(row, rawRow(sequence)).length;
          changed[isUsing(sequence) ? "using" : "notUsing"] += numChanged;
        },
      );
      expect(changed.notUsing).toBe(0);
      expect(changed.using).toBeGreaterThan(0);
    });

    test("the most likely token stays where the processor says that it does", () => {
      if (!create().isArgmaxInvariant()) return;
      const everyone = { present: clients, renewed: [], groups: clients.map(() => 0) };
      play([everyone, everyone, everyone], (sequence, row) => {
        expect(argmax(row)).toBe(argmax(rawRow(sequence)));
      });
    });

    test("a hole may be announced as removed and filled by a move as well", () => {
      const processor = create();
      const [a, b, c, d, e] = clients.map((client) => join(client % kinds.length));
      processor.updateState(updateOf({ batchSize: 4, added: [a, b, c, d] }));
      const update = updateOf({ batchSize: 3, added: [e] });
      processor.updateState({
        ...update,
        removed: [2],
        moved: [
          { from: 3, to: 2, directionality: "unidirectional" },
          { from: 0, to: 1, directionality: "swap" },
        ],
      });
      const sequences = [b, e, d];
      expect(applyTo(processor, sequences)).toEqual(
        sequences.flatMap((sequence) => applyTo(createLone(sequence), [sequence])),
      );
    });

    test("a batch that empties leaves nothing behind", () => {
      const processor = create();
      const [a, b] = using.map((_, kind) => join(kind)).concat(join(0));
      processor.updateState(updateOf({ batchSize: 2, added: [a, b] }));
      processor.updateState({ batchSize: 0, removed: [1, 0], added: [], moved: [] });
      processor.updateState(null);
      const others = notUsing.map((_, kind) => join(using.length + kind));
      processor.updateState(updateOf({ batchSize: others.length, added: others }));
      expect(applyTo(processor, others)).toEqual(others.map(rawRow));
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
