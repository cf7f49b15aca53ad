/** A user's logits processor, and the isolation of its failures. */
import { EngineError } from "../../contract/errors.ts";
import { shown } from "../../excerpt.ts";
import type { BatchUpdate, LogitsProcessor } from "../contract/logits-processor.ts";
import { reasonOf, RowFailures } from "../contract/row-failures.ts";
import { takeReturned } from "../contract/take-returned.ts";
import type { GuardedLogits } from "../guarded-logits.ts";
import { replayRows, toAdded, updateState } from "./replay-rows.ts";
import type { Failures, ProcessedRow } from "./replay-rows.ts";

/** Errors by row index. A row keeps its first error. */
export type RowErrors = Map<number, EngineError>;

/**
 * Mutable. A failure ends the requests that cause it and no others. The others get the same logits as without them.
 *
 * The processor may say which rows failed (`RowFailures`). If it does not, its edits are undone, and `replayRows` applies
 * it to every row alone and finds the failed rows. Then a new instance replaces the old one, whose state may be half
 * updated. All rows fail as long as no new instance can be made.
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
    if (!this.#tryApply(logits, errors)) {
      const failures = replayRows(
        { create: this.#create, failure: this.#failure },
        logits,
        withoutErrors(rows, errors),
      );
      this.#blame(failures, errors, logits);
      this.#replaceInstance(rows, errors);
    }
    logits.unguard();
  }

  /** False if it is not known which rows failed. All edits are undone then. */
  #tryApply(logits: GuardedLogits, errors: RowErrors): boolean {
    if (this.#instance === null) return false;
    try {
      takeReturned(logits, this.#instance.apply(logits));
      return true;
    } catch (thrown) {
      if (thrown instanceof RowFailures) {
        this.#blame(thrown.failures, errors, logits);
        return true;
      }
      logits.restore();
      this.#giveUp(thrown);
      return false;
    }
  }

  #giveUp(thrown: unknown): void {
    this.#instance = null;
    this.#failure = thrown;
  }

  #blame(failures: Failures, errors: RowErrors, logits?: GuardedLogits): void {
    for (const [rowIndex, thrown] of failures) {
      logits?.restoreRow(rowIndex);
      if (errors.has(rowIndex)) continue;
      const message = `The logits processor ${this.name} failed: ${reasonOf(thrown)}`;
      errors.set(rowIndex, new EngineError("logits_processor_failed", message, { cause: thrown }));
    }
  }

  /** Adds the rows without an error to a new instance. */
  #replaceInstance(rows: readonly ProcessedRow[], errors: RowErrors): void {
    const added = withoutErrors(rows, errors).map(([rowIndex, row]) => toAdded(row, rowIndex));
    try {
      const instance = this.#create();
      updateState(instance, { batchSize: rows.length, removed: [], added, moved: [] });
      this.#instance = instance;
      this.#failure = null;
    } catch (thrown) {
      this.#giveUp(thrown);
    }
  }
}

/** Throws EngineError `invalid_logits_processor` when the processor throws, or says neither. */
export function askArgmaxInvariance(processor: LogitsProcessor, name: string): boolean {
  const subject = `isArgmaxInvariant() of the logits processor ${name}`;
  let answer: unknown;
  try {
    answer = processor.isArgmaxInvariant();
  } catch (cause) {
    throw new EngineError("invalid_logits_processor", `${subject} threw: ${reasonOf(cause)}`, { cause });
  }
  if (typeof answer === "boolean") return answer;
  throw new EngineError("invalid_logits_processor", `${subject} must return true or false, got ${shown(answer)}.`);
}

function withoutErrors(rows: readonly ProcessedRow[], errors: RowErrors): (readonly [number, ProcessedRow])[] {
  return [...rows.entries()].filter(([rowIndex]) => !errors.has(rowIndex));
}
