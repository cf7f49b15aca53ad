/** The logits of packed runs, which stay where they are computed, and the most likely tokens of each row. */
import type { DecoderGraph } from "../models/built-model.ts";
import { outputWidthOf } from "../models/decoder-shape.ts";
import type { Session } from "../runtime/session.ts";
import type { Tensor } from "../runtime/tensor.ts";
import type { DeferredLogits } from "../sampling/step-logits.ts";
import { regionBytes, StepMemory } from "./step-memory.ts";
import type { StepRegion } from "./step-memory.ts";

/** Prompt logprobs take so many rows at a time. */
const ROWS_OF_LOGPROBS = 32;

/** Rows for runs whose logits are not sampled. */
export function numSpareRows({ returnsAllRows = false }: Pick<DecoderGraph, "returnsAllRows">, maxNumTokens: number) {
  return returnsAllRows ? Math.max(ROWS_OF_LOGPROBS, maxNumTokens) : ROWS_OF_LOGPROBS;
}

type CandidateLayouts = ReturnType<typeof candidateLayouts>;

function candidateLayouts(numRows: number, numCandidates: number) {
  return {
    candidate_logits: { elementType: "float32", shape: [numRows, numCandidates] },
    candidate_ids: { elementType: "int32", shape: [numRows, numCandidates] },
    mass: { elementType: "float32", shape: [numRows] },
  } as const;
}

/** The rows of one run. */
export interface RunRows extends Disposable {
  readonly firstRow: number;
  readonly numRows: number;
  /** By output name. */
  readonly tensors: Readonly<Record<string, Tensor>>;
  readonly candidates: StepRegion<CandidateLayouts>;
}

/** Mutable: memory for the rows of one step, of which each run writes its own. */
export class RunLogits implements Disposable {
  /** The first of the rows that no step has. */
  readonly spareRow: number;
  /** Columns: the vocabulary, or the states of a decoder that pools. */
  readonly #width: number;
  readonly #numCandidates: number;
  /** [numRows, width], where the session computes. */
  readonly #logits: Tensor<"float32">;
  readonly #memory: StepMemory;
  /** Row-major [numRows, numCandidates]. */
  readonly #values: Float32Array;
  readonly #tokenIds: Int32Array;
  /** [numRows] */
  readonly #masses: Float32Array;

  /**
   * @param maxRows Maximum number of rows in a step.
   * @param numSpare See `numSpareRows`.
   */
  constructor(
    session: Session,
    { numCandidates, ...shape }: Pick<DecoderGraph, "vocabSize" | "outputWidth" | "numCandidates">,
    maxRows: number,
    numSpare: number,
  ) {
    const numRows = maxRows + numSpare;
    this.spareRow = maxRows;
    this.#width = outputWidthOf(shape);
    this.#numCandidates = numCandidates;
    this.#logits = session.allocateTensor("float32", [numRows, this.#width]);
    this.#memory = new StepMemory(session, regionBytes(candidateLayouts(numRows, numCandidates)));
    this.#values = new Float32Array(numRows * numCandidates);
    this.#tokenIds = new Int32Array(numRows * numCandidates);
    this.#masses = new Float32Array(numRows);
  }

  rows(firstRow: number, numRows: number): RunRows {
    using owned = new DisposableStack();
    const logits = owned.use(this.#logits.view(firstRow * this.#width, [numRows, this.#width]));
    const candidates = owned.use(this.#memory.region(candidateLayouts(numRows, this.#numCandidates)));
    const moved = owned.move();
    return {
      firstRow,
      numRows,
      tensors: { logits, ...candidates.tensors },
      candidates,
      [Symbol.dispose]: () => moved.dispose(),
    };
  }

  /** Keeps a run's results until the next step. Other runs overwrite the memory. */
  keep({ firstRow, candidates }: RunRows): void {
    candidates.download();
    const { candidate_logits: values, candidate_ids: tokenIds, mass } = candidates.arrays;
    this.#values.set(values, firstRow * this.#numCandidates);
    this.#tokenIds.set(tokenIds, firstRow * this.#numCandidates);
    this.#masses.set(mass, firstRow);
  }

  /** The rows from `firstRow` on. Valid until the next step. */
  deferred(firstRow: number): DeferredLogits {
    return {
      candidatesOf: (rowIndex) => {
        const start = (firstRow + rowIndex) * this.#numCandidates;
        const end = start + this.#numCandidates;
        return {
          values: this.#values.subarray(start, end),
          tokenIds: this.#tokenIds.subarray(start, end),
          mass: this.#masses[firstRow + rowIndex]!,
          isWholeRow: this.#numCandidates === this.#width,
        };
      },
      read: (rowIndex, row) => this.read(firstRow + rowIndex, row),
    };
  }

  /** Copies rows from `firstRow` on into `rows`, row-major [numRows, width]. */
  read(firstRow: number, rows: Float32Array): void {
    const shape = [rows.length / this.#width, this.#width];
    using view = this.#logits.view(firstRow * this.#width, shape);
    view.copyInto(rows);
  }

  [Symbol.dispose](): void {
    this.#memory[Symbol.dispose]();
    this.#logits[Symbol.dispose]();
  }
}
