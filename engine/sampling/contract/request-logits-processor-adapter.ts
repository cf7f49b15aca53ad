/** Adapts a function of one request's row to a logits processor. */
import type { SamplingParams } from "../../contract/sampling-params.ts";
import { shown } from "../../excerpt.ts";
import { LogitsProcessor } from "./logits-processor.ts";
import type { AddedRequest, BatchUpdate, Logits } from "./logits-processor.ts";
import { RowFailures } from "./row-failures.ts";
import { RowStates } from "./row-states.ts";
import { refusePromise } from "./synchronous.ts";
import { describeReturned } from "./take-returned.ts";

/**
 * Transforms the logits of one request, `[vocabSize]`: edits the row in place and returns it, or returns a new one. The
 * token ids are live lists that contain the newest token at each call. The number of declared parameters selects the
 * form.
 */
export type RequestLogitsProcessor = OfOutput | OfPromptAndOutput;

type OfOutput = (outputTokenIds: readonly number[], logits: Float32Array) => Float32Array;
type OfPromptAndOutput = (
  promptTokenIds: readonly number[],
  outputTokenIds: readonly number[],
  logits: Float32Array,
) => Float32Array;

/** With its token ids bound. */
type BoundProcessor = (logits: Float32Array) => unknown;

/**
 * A subclass returns a function for each request. The function is created when the request joins the batch, and again
 * when it resumes after a preemption, then with existing output: it must be able to derive its state from the output. A
 * function that throws ends only its own request.
 */
export abstract class RequestLogitsProcessorAdapter extends LogitsProcessor {
  readonly #processors = new RowStates<BoundProcessor>();

  /** Returns the function for a request with these parameters, or null to leave its logits unchanged. */
  abstract newRequestLogitsProcessor(params: SamplingParams): RequestLogitsProcessor | null;

  override updateState(batchUpdate: BatchUpdate | null): void {
    const failures = new Map<number, unknown>();
    this.#processors.update(batchUpdate, (request) => {
      try {
        return this.#bind(request);
      } catch (error) {
        failures.set(request.index, error);
        return undefined;
      }
    });
    if (failures.size > 0) throw new RowFailures(failuresAfterMoves(failures, batchUpdate));
  }

  override apply(logits: Logits): Logits {
    const failures = new Map<number, unknown>();
    for (const [rowIndex, process] of this.#processors.entries()) {
      const row = logits.row(rowIndex);
      try {
        const returned = process(row);
        if (returned !== row) row.set(requireRow(returned, row.length));
      } catch (error) {
        failures.set(rowIndex, error);
      }
    }
    if (failures.size > 0) throw new RowFailures(failures);
    return logits;
  }

  #bind({ params, promptTokenIds, outputTokenIds }: AddedRequest): BoundProcessor | undefined {
    const process = this.newRequestLogitsProcessor(params);
    refusePromise(process, "newRequestLogitsProcessor()");
    if (process === null) return undefined;
    if (takesPrompt(process)) return (logits) => process(promptTokenIds, outputTokenIds, logits);
    return (logits) => process(outputTokenIds, logits);
  }
}

function takesPrompt(process: RequestLogitsProcessor): process is OfPromptAndOutput {
  if (typeof process !== "function" || (process.length !== 2 && process.length !== 3)) {
    const got = typeof process === "function" ? `one of ${process.length}` : shown(process);
    throw new TypeError(`newRequestLogitsProcessor() must return null or a function of 2 or 3 parameters, got ${got}`);
  }
  return process.length === 3;
}

function requireRow(returned: unknown, vocabSize: number): Float32Array {
  if (returned instanceof Float32Array && returned.length === vocabSize) return returned;
  refusePromise(returned, "the function of a request");
  const got = returned instanceof Float32Array ? `${returned.length} values` : describeReturned(returned);
  throw new TypeError(`the function of a request must return a row of ${vocabSize} logits, got ${got}`);
}

/** Rows are added first and moved afterwards. Failures are reported at the rows' final positions. */
function failuresAfterMoves(
  failures: ReadonlyMap<number, unknown>,
  batchUpdate: BatchUpdate | null,
): ReadonlyMap<number, unknown> {
  const rows = new RowStates<{ readonly thrown: unknown }>();
  const added = [...failures.keys()].map((index) => ({ index }));
  const moved = batchUpdate?.moved ?? [];
  rows.update({ removed: [], added, moved }, ({ index }) => ({ thrown: failures.get(index) }));
  return new Map(Array.from(rows.entries(), ([rowIndex, { thrown }]) => [rowIndex, thrown]));
}
