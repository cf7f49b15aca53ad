/** Finds the rows at which a custom logits processor fails, if it did not say which: every row is processed alone. */
import type { AddedRequest, BatchUpdate, Logits, LogitsProcessor } from "../contract/logits-processor.ts";
import { refusePromise } from "../contract/synchronous.ts";
import { takeReturned, WrongShape } from "../contract/take-returned.ts";
import { SingleRowLogits } from "./single-row-logits.ts";

/** Everything needed to add a row again. */
export interface ProcessedRow {
  readonly samplingParams: AddedRequest["params"];
  readonly promptTokenIds: readonly number[];
  /** The live list. */
  readonly outputTokenIds: readonly number[];
}

/** Errors by row index. */
export type Failures = ReadonlyMap<number, unknown>;

type IndexedRow = readonly [rowIndex: number, row: ProcessedRow];

export interface FailedProcessor {
  readonly create: () => LogitsProcessor;
  /** The error for all rows together. */
  readonly failure: unknown;
}

/**
 * Applies the processor to every row alone. The first of these sets that has any rows are the failed rows:
 *
 * 1. rows at which `apply` fails again, or the updates that add and remove the row;
 * 2. rows at which the update of the next step fails: a processor may look at the output of a row only then;
 * 3. rows that the processor changed: only requests that use it can have made it fail.
 *
 * @param logits As they were before the processor; edited as the processor edits them.
 */
export function replayRows(
  { create, failure }: FailedProcessor,
  logits: Logits,
  rows: readonly IndexedRow[],
): Failures {
  const changed = new Map<number, unknown>();
  const inThisStep = tryAlone(create, rows, (instance, rowIndex) => {
    const alone = new SingleRowLogits(logits.row(rowIndex));
    takeAlone(alone, instance.apply(alone), failure);
    if (alone.isChanged) changed.set(rowIndex, failure);
  });
  if (inThisStep.size > 0) return inThisStep;
  const inNextUpdate = tryAlone(create, rows, (instance) => updateState(instance, null));
  return inNextUpdate.size > 0 ? inNextUpdate : changed;
}

/** Throws `failure` for a wrong shape if it is one too: it has the sizes of the call that the engine made. */
function takeAlone(logits: Logits, returned: unknown, failure: unknown): void {
  try {
    takeReturned(logits, returned);
  } catch (thrown) {
    throw thrown instanceof WrongShape && failure instanceof WrongShape ? failure : thrown;
  }
}

/** Calls `attempt` with an instance that has this row only. An instance that has failed is not used again. */
function tryAlone(
  create: () => LogitsProcessor,
  rows: readonly IndexedRow[],
  attempt: (instance: LogitsProcessor, rowIndex: number) => void,
): Failures {
  const failures = new Map<number, unknown>();
  let instance: LogitsProcessor | null = null;
  for (const [rowIndex, row] of rows) {
    try {
      instance ??= create();
      updateState(instance, { batchSize: 1, removed: [], added: [toAdded(row, 0)], moved: [] });
      attempt(instance, rowIndex);
      // Before the next row is added: an error about the output of this row would otherwise be blamed on the next one.
      updateState(instance, { batchSize: 0, removed: [0], added: [], moved: [] });
    } catch (thrown) {
      failures.set(rowIndex, thrown);
      instance = null;
    }
  }
  return failures;
}

/** Throws what the processor throws, and a TypeError for a promise. */
export function updateState(processor: LogitsProcessor, batchUpdate: BatchUpdate | null): void {
  const returned: unknown = processor.updateState(batchUpdate);
  refusePromise(returned, "updateState()");
}

export function toAdded({ samplingParams, promptTokenIds, outputTokenIds }: ProcessedRow, index: number): AddedRequest {
  return Object.freeze({ index, params: samplingParams, promptTokenIds, outputTokenIds });
}
