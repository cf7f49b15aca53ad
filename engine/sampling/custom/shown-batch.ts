/** The batch as shown to custom logits processors, which cannot change the engine's data through it. */
import type { SamplingParams } from "../../contract/sampling-params.ts";
import type { AddedRequest, BatchUpdate } from "../contract/logits-processor.ts";
import { RowStates } from "../contract/row-states.ts";
import { freezeSamplingParams } from "./freeze-sampling-params.ts";
import type { ProcessedRow } from "./replay-rows.ts";

/**
 * Mutable. Lists of output tokens are copies that are kept up to date. Everything else is frozen, so that a write
 * throws.
 */
export class ShownBatch {
  readonly #states = new RowStates<ShownRow>();
  #rows: readonly ShownRow[] = [];

  /** By row index. */
  get rows(): readonly ProcessedRow[] {
    return this.#rows;
  }

  /** Call it in every step, after the newest tokens have been appended. Returns the update for processors. */
  update(batchUpdate: BatchUpdate | null): BatchUpdate | null {
    for (const row of this.#rows) row.catchUp();
    if (batchUpdate === null) return null;
    const { batchSize, removed, moved } = batchUpdate;
    const added: AddedRequest[] = [];
    this.#states.update(batchUpdate, (request) => {
      const row = new ShownRow(request);
      added.push(row.toAdded(request.index));
      return row;
    });
    this.#rows = Array.from({ length: batchSize }, (_, rowIndex) => this.#states.get(rowIndex)!);
    return Object.freeze({
      batchSize,
      removed: Object.freeze([...removed]),
      added: Object.freeze(added),
      moved: Object.freeze(moved.map((move) => Object.freeze({ ...move }))),
    });
  }
}

/** Mutable: its output list grows with the request's. */
class ShownRow implements ProcessedRow {
  readonly samplingParams: SamplingParams;
  readonly promptTokenIds: readonly number[];
  readonly outputTokenIds: number[];
  readonly #actualOutputTokenIds: readonly number[];
  #numShown: number;

  constructor({ params, promptTokenIds, outputTokenIds }: AddedRequest) {
    this.samplingParams = freezeSamplingParams(params);
    this.promptTokenIds = Object.freeze(promptTokenIds);
    this.outputTokenIds = [...outputTokenIds];
    this.#actualOutputTokenIds = outputTokenIds;
    this.#numShown = outputTokenIds.length;
  }

  toAdded(index: number): AddedRequest {
    const { samplingParams: params, promptTokenIds, outputTokenIds } = this;
    return Object.freeze({ index, params, promptTokenIds, outputTokenIds });
  }

  /** One push per step. If a processor has changed the length of the list, it is repaired. */
  catchUp(): void {
    const actual = this.#actualOutputTokenIds;
    const shown = this.outputTokenIds;
    try {
      if (shown.length !== this.#numShown) shown.length = 0;
      for (let index = shown.length; index < actual.length; index++) shown.push(actual[index]!);
    } catch {
      // A processor has frozen the list, so it no longer grows for processors.
    }
    this.#numShown = actual.length;
  }
}
