/** A user's logits processor, and the isolation of its failures. */
import { EngineError } from "../../contract/errors.ts";
import type { AddedRequest, BatchUpdate, LogitsProcessor } from "../contract/logits-processor.ts";
import { reasonOf, RowFailures } from "../contract/row-failures.ts";
import { refusePromise } from "../contract/synchronous.ts";
import { takeReturned } from "../contract/take-returned.ts";
import type { GuardedLogits } from "../guarded-logits.ts";
import { SingleRowLogits } from "./single-row-logits.ts";

/** Everything needed to add a row again. */
export interface ProcessedRow {
  readonly samplingParams: AddedRequest["params"];
  readonly promptTokenIds: readonly number[];
  /** The live list. */
  readonly outputTokenIds: readonly number[];
}

/** Errors by row index. A row keeps its first error. */
export type RowErrors = Map<number, EngineError>;

/**
 * Mutable. A failure ends the requests that caused it and no others: the others get the same logits as without those.
 * The processor may report the failed rows (`RowFailures`). Otherwise its edits are undone, a new instance is created,
 * and every row is given to it separately. The failed rows are then the first non-empty set of: the rows at which it
 * fails again; the rows at which it fails in the next update; the rows that it changed, because they use it. All rows
 * fail if no new instance can be created. The new instance replaces the old one, whose state may be half updated.
 */
export class CustomProcessor {
  /** As spelled in the setting; part of error messages. */
  readonly name: string;
  readonly isArgmaxInvariant: boolean;
  readonly #create: () => LogitsProcessor;
  /** Null while its state is unknown; `#failure` gives the reason. */
  #instance: LogitsProcessor | null;
  #failure: unknown = null;

  /** Throws the errors of `create`, and EngineError `invalid_logits_processor` if `isArgmaxInvariant` fails. */
  constructor(name: string, create: () => LogitsProcessor) {
    this.name = name;
    this.#create = create;
    this.#instance = create();
    this.isArgmaxInvariant = askArgmaxInvariance(this.#instance, name);
  }

  updateState(batchUpdate: BatchUpdate | null, errors: RowErrors): void {
    try {
      if (this.#instance !== null) updateState(this.#instance, batchUpdate);
    } catch (thrown) {
      if (thrown instanceof RowFailures) this.#blame(thrown.failures, errors);
      else this.#giveUp(thrown);
    }
  }

  apply(logits: GuardedLogits, rows: readonly ProcessedRow[], errors: RowErrors): void {
    logits.guard(this.name);
    try {
      if (this.#instance === null) return this.#applyRowByRow(logits, rows, errors);
      takeReturned(logits, this.#instance.apply(logits));
    } catch (thrown) {
      if (thrown instanceof RowFailures) {
        for (const rowIndex of thrown.failures.keys()) logits.restoreRow(rowIndex);
        this.#blame(thrown.failures, errors);
      } else {
        logits.restore();
        this.#giveUp(thrown);
        this.#applyRowByRow(logits, rows, errors);
      }
    } finally {
      logits.unguard();
    }
  }

  #giveUp(thrown: unknown): void {
    this.#instance = null;
    this.#failure = thrown;
  }

  #blame(failures: ReadonlyMap<number, unknown>, errors: RowErrors): void {
    for (const [rowIndex, thrown] of failures) {
      if (errors.has(rowIndex)) continue;
      const message = `The logits processor ${this.name} failed: ${reasonOf(thrown)}`;
      errors.set(rowIndex, new EngineError("logits_processor_failed", message, { cause: thrown }));
    }
  }

  #applyRowByRow(logits: GuardedLogits, rows: readonly ProcessedRow[], errors: RowErrors): void {
    const failures = new Map<number, unknown>();
    const changed: number[] = [];
    let instance: LogitsProcessor | null = null;
    for (const [rowIndex, row] of rows.entries()) {
      if (errors.has(rowIndex)) continue;
      const alone = new SingleRowLogits(logits.row(rowIndex));
      try {
        instance ??= this.#create();
        updateState(instance, { batchSize: 1, removed: [], added: [toAdded(row, 0)], moved: [] });
        takeReturned(alone, instance.apply(alone));
        // Before the next row is added, so that an error about this row's output is not attributed to the next.
        updateState(instance, { batchSize: 0, removed: [0], added: [], moved: [] });
        if (alone.isChanged) changed.push(rowIndex);
      } catch (thrown) {
        alone.restore();
        failures.set(rowIndex, thrown);
        instance = null;
      }
    }
    if (failures.size === 0) this.#updateRowByRow(rows, errors, failures);
    if (failures.size === 0) for (const rowIndex of changed) failures.set(rowIndex, this.#failure);
    this.#blame(failures, errors);
    this.#reinstate(instance, rows, errors);
  }

  /** A processor may read a row's output only in the steps after the add. */
  #updateRowByRow(rows: readonly ProcessedRow[], errors: RowErrors, failures: Map<number, unknown>): void {
    for (const [rowIndex, row] of rows.entries()) {
      if (errors.has(rowIndex)) continue;
      try {
        const instance = this.#create();
        updateState(instance, { batchSize: 1, removed: [], added: [toAdded(row, 0)], moved: [] });
        updateState(instance, null);
      } catch (thrown) {
        failures.set(rowIndex, thrown);
      }
    }
  }

  /** Gives the remaining rows to an instance without rows. */
  #reinstate(instance: LogitsProcessor | null, rows: readonly ProcessedRow[], errors: RowErrors): void {
    const added = rows.flatMap((row, rowIndex) => (errors.has(rowIndex) ? [] : [toAdded(row, rowIndex)]));
    try {
      const successor = instance ?? this.#create();
      updateState(successor, { batchSize: rows.length, removed: [], added, moved: [] });
      this.#instance = successor;
      this.#failure = null;
    } catch (thrown) {
      this.#giveUp(thrown);
    }
  }
}

function updateState(processor: LogitsProcessor, batchUpdate: BatchUpdate | null): void {
  const returned: unknown = processor.updateState(batchUpdate);
  refusePromise(returned, "updateState()");
}

/** Throws EngineError `invalid_logits_processor` if the processor throws or does not return a boolean. */
export function askArgmaxInvariance(processor: LogitsProcessor, name: string): boolean {
  const subject = `isArgmaxInvariant() of the logits processor ${name}`;
  let answer: unknown;
  try {
    answer = processor.isArgmaxInvariant();
  } catch (cause) {
    throw new EngineError("invalid_logits_processor", `${subject} threw: ${reasonOf(cause)}`, { cause });
  }
  if (typeof answer === "boolean") return answer;
  throw new EngineError("invalid_logits_processor", `${subject} must return true or false, got ${String(answer)}.`);
}

function toAdded({ samplingParams, promptTokenIds, outputTokenIds }: ProcessedRow, index: number): AddedRequest {
  return Object.freeze({ index, params: samplingParams, promptTokenIds, outputTokenIds });
}
