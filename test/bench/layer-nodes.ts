/**
 * Nodes of a decoder's layer on the CPU, against those that do the same in another way, with one thread: the norm of the
 * residual stream against ONNX Runtime's operator for both, and the 8-bit products of gate and up against one product
 * whose outputs are scaled and copied apart.
 */
import { skipSimplifiedLayerNormalization } from "../../engine/graph/contrib-ops.ts";
import { multiply, split } from "../../engine/graph/standard-ops.ts";
import type { Value } from "../../engine/graph/value.ts";
import { applyActivation } from "../../engine/models/activation.ts";
import { createGraphContext, type GraphContext } from "../../engine/models/graph-context.ts";
import { int8Product, quantiseRows, unscaledProduct, type Int8Weight } from "../../engine/models/int8-product.ts";
import { addAndNormalise } from "../../engine/models/rms-norm.ts";
import { imaginedWeights } from "../../engine/models/weight-source.ts";
import { Session } from "../../engine/runtime/session.ts";
import { Tensor } from "../../engine/runtime/tensor.ts";
import { ratioFigure, reportProgress, speedsByTurns } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { fillRandom, shape } from "./shape.ts";

const { hiddenSize, intermediateSize } = shape;
const rowCounts = [1, 8, 32, 256];
const turnsPerRound = 200;
/** Neither may be slower, whatever the number of rows. */
const target = 1;

type Build = (context: GraphContext, input: Value) => readonly Value[];

interface Comparison {
  readonly name: string;
  readonly ours: Build;
  readonly theirs: Build;
}

const comparisons: readonly Comparison[] = [
  {
    name: "norm of a sum",
    ours: (context, input) => Object.values(addAndNormalise(context, "norm", normInputs(context, input))),
    theirs: (context, input) =>
      Object.values(skipSimplifiedLayerNormalization(context.graph, "norm", normInputs(context, input))),
  },
  {
    name: "gate and up in 8 bits",
    ours(context, input) {
      const [gate, up] = ["gate", "up"].map((name) =>
        int8Product(context, name, input, int8Weight(context, name, intermediateSize)),
      );
      return [gated(context, gate!, up!)];
    },
    theirs(context, input) {
      const { graph } = context;
      const { quantised, rowScales } = quantiseRows(context, "rows", input);
      const product = unscaledProduct(graph, "joint", quantised, int8Weight(context, "joint", 2 * intermediateSize));
      const scaled = multiply(graph, "scaled", product, rowScales);
      const widths = [intermediateSize, intermediateSize] as const;
      const [gate, up] = split(graph, "split", scaled, { axis: 1, sizes: widths });
      return [gated(context, gate, up)];
    },
  },
];

export async function benchLayerNodes(rounds: number): Promise<Figure[]> {
  return comparisons.flatMap((comparison) => {
    using ours = load(comparison.ours);
    using theirs = load(comparison.theirs);
    return rowCounts.map((numRows) => {
      const name = `${comparison.name}, ${numRows} rows`;
      reportProgress(name);
      const turns = { numTurns: rounds * turnsPerRound, amount: numRows };
      const speeds = speedsByTurns({ ours: bindRows(ours, numRows), theirs: bindRows(theirs, numRows) }, turns);
      return ratioFigure({ name, unit: "rows/s", ...speeds, target });
    });
  });
}

function load(build: Build): Session {
  const float32 = { kind: "plain", elementType: "float32" } as const;
  const context = createGraphContext("layer", {
    weights: imaginedWeights,
    precision: { activations: "float32", linear: float32, head: float32, vision: float32 },
    device: "cpu",
    kvLayout: { kind: "slots" },
  });
  const { graph } = context;
  for (const value of build(context, graph.input("input", "float32", ["N", hiddenSize]))) graph.output(value);
  return Session.fromBytes(graph.encode(), { device: "cpu", deviceId: 0, numThreads: 1 });
}

function normInputs(
  { graph }: GraphContext,
  input: Value,
): { readonly input: Value; readonly skip: Value; readonly weight: Value; readonly epsilon: number } {
  const skip = graph.input("skip", "float32", ["N", hiddenSize]);
  const weight = graph.constant("norm.weight", "float32", [hiddenSize], random(2, hiddenSize));
  return { input, skip, weight, epsilon: shape.rmsNormEps };
}

function int8Weight({ graph }: GraphContext, name: string, numOutputs: number): Int8Weight {
  const values = Array.from(random(3, hiddenSize * numOutputs), (value) => Math.max(-127, Math.round(value * 40)));
  return {
    weight: graph.constant(`${name}.weight`, "int8", [hiddenSize, numOutputs], values),
    scales: graph.constant(`${name}.scales`, "float32", [numOutputs], random(4, numOutputs)),
  };
}

function gated({ graph }: GraphContext, gate: Value, up: Value): Value {
  return multiply(graph, "gated", applyActivation(graph, "activation", gate, "silu"), up);
}

function random(seed: number, length: number): Float32Array {
  const values = new Float32Array(length);
  fillRandom(values, 1, seed);
  return values;
}

/** Returns a function that computes the rows. Outputs are bound, so that no run allocates them. */
function bindRows(session: Session, numRows: number): () => void {
  const binding = session.createBinding();
  for (const [index, name] of session.inputNames.entries()) {
    const values = random(5 + index, numRows * hiddenSize);
    binding.bindInput(name, Tensor.fromTypedArray("float32", values, [numRows, hiddenSize]));
  }
  for (const name of session.outputNames) {
    const width = name === "gated" ? intermediateSize : hiddenSize;
    const values = new Float32Array(numRows * width);
    binding.bindOutput(name, Tensor.fromTypedArray("float32", values, [numRows, width]));
  }
  return () => binding.run();
}
