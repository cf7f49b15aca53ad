/** The norm of a layer's residual stream on the CPU, against ONNX Runtime's operator for sum and norm, with one thread. */
import { skipSimplifiedLayerNormalization } from "../../engine/graph/contrib-ops.ts";
import type { Value } from "../../engine/graph/value.ts";
import type { GraphContext } from "../../engine/models/graph-context.ts";
import { addAndNormalise } from "../../engine/models/rms-norm.ts";
import { Session } from "../../engine/runtime/session.ts";
import { Tensor } from "../../engine/runtime/tensor.ts";
import { createFloatContext } from "../support/engine/float-context.ts";
import { ratioFigure, reportProgress, speedsByTurns } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { fillRandom, shape } from "./shape.ts";

const { hiddenSize } = shape;
/** By number of rows, the smallest ratio: one row takes most of its time around the kernels. */
const targets = { 1: 0.9, 8: 1.1, 32: 1.5, 256: 2 } as const;
const turnsPerRound = 200;

interface NormInputs {
  readonly input: Value;
  readonly skip: Value;
  readonly weight: Value;
  readonly epsilon: number;
}

type Build = (context: GraphContext, inputs: NormInputs) => { readonly normalised: Value; readonly sum: Value };

export async function benchNorms(rounds: number): Promise<Figure[]> {
  using ours = load((context, inputs) => addAndNormalise(context, "norm", inputs));
  using theirs = load(({ graph }, inputs) => skipSimplifiedLayerNormalization(graph, "norm", inputs));
  return Object.entries(targets).map(([rows, target]) => {
    const numRows = Number(rows);
    const name = `${numRows} rows`;
    reportProgress(`norms of ${name}`);
    const turns = { numTurns: rounds * turnsPerRound, amount: numRows };
    const speeds = speedsByTurns({ ours: bindRows(ours, numRows), theirs: bindRows(theirs, numRows) }, turns);
    return ratioFigure({ name, unit: "rows/s", ...speeds, target });
  });
}

function load(build: Build): Session {
  const context = createFloatContext("norm");
  const { graph } = context;
  const { normalised, sum } = build(context, {
    input: graph.input("input", "float32", ["N", hiddenSize]),
    skip: graph.input("skip", "float32", ["N", hiddenSize]),
    weight: graph.constant("weight", "float32", [hiddenSize], random(1, hiddenSize)),
    epsilon: shape.rmsNormEps,
  });
  for (const value of [normalised, sum]) graph.output(value);
  return Session.fromBytes(graph.encode(), { device: "cpu", deviceId: 0, numThreads: 1 });
}

function random(seed: number, length: number): Float32Array {
  const values = new Float32Array(length);
  fillRandom(values, 1, seed);
  return values;
}

/** Returns a function that computes the rows. Outputs are bound, so that no run allocates them. */
function bindRows(session: Session, numRows: number): () => void {
  const binding = session.createBinding();
  const tensorOf = (values: Float32Array): Tensor => Tensor.fromTypedArray("float32", values, [numRows, hiddenSize]);
  for (const [index, name] of session.inputNames.entries()) {
    binding.bindInput(name, tensorOf(random(2 + index, numRows * hiddenSize)));
  }
  for (const name of session.outputNames) binding.bindOutput(name, tensorOf(new Float32Array(numRows * hiddenSize)));
  return () => binding.run();
}
