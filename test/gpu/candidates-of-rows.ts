/** The end of every paged decoder, alone: rows of logits in, their candidates out. */
import { RunLogits } from "../../engine/decoder/run-logits.ts";
import type { RunRows } from "../../engine/decoder/run-logits.ts";
import { GraphBuilder } from "../../engine/graph/graph-builder.ts";
import { numCandidatesOf, outputCandidates } from "../../engine/models/decoder-graph/candidates.ts";
import { logitRows } from "../../engine/models/graph-context.ts";
import type { Session } from "../../engine/runtime/session.ts";
import { Tensor } from "../../engine/runtime/tensor.ts";

/** `logits` float32 [R, vocabSize] is an input. */
export function buildTail(vocabSize: number): GraphBuilder {
  const graph = new GraphBuilder("sampling_tail");
  outputCandidates({ graph }, graph.input("logits", "float32", [logitRows, vocabSize]), vocabSize);
  return graph;
}

export interface Tail extends Disposable {
  readonly logits: RunLogits;
  /** All rows. */
  readonly rows: RunRows;
  /** Computes the candidates and the masses of all rows, where the session computes. */
  compute(): void;
  /** Copies them to the host, from where `logits` has them. */
  keep(): void;
}

/**
 * Binds the memory that a decoder's runs write.
 *
 * @param values Row-major [numRows, vocabSize].
 * @param inverseTemperatures [numRows]
 */
export function bindTail(
  session: Session,
  vocabSize: number,
  values: Float32Array,
  inverseTemperatures: Float32Array,
): Tail {
  using owned = new DisposableStack();
  const numRows = inverseTemperatures.length;
  const logits = owned.use(
    new RunLogits(session, { vocabSize, numCandidates: numCandidatesOf(vocabSize) }, numRows, 0),
  );
  const rows = owned.use(logits.rows(0, numRows));
  const { logits: input, ...outputs } = rows.tensors;
  input!.copyFrom(values);
  const binding = owned.use(session.createBinding());
  binding.bindInput("logits", input!);
  const inverse = owned.use(Tensor.fromTypedArray("float32", inverseTemperatures, [numRows, 1]));
  binding.bindInput("inverse_temperature", inverse);
  for (const [name, tensor] of Object.entries(outputs)) binding.bindOutput(name, tensor);
  const moved = owned.move();
  return {
    logits,
    rows,
    compute: () => binding.run(),
    keep: () => logits.keep(rows),
    [Symbol.dispose]: () => moved.dispose(),
  };
}
