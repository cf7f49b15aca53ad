/** Attention of a prompt's chunk in pieces, against the whole: the operators alone, in the bench's shape, with one thread. */
import { groupQueryAttention } from "../../engine/graph/contrib-ops.ts";
import { GraphBuilder } from "../../engine/graph/graph-builder.ts";
import { sliceBefore } from "../../engine/graph/kv-cache-ops.ts";
import { int64Scalar } from "../../engine/graph/shape-ops.ts";
import { gatherRows, shapeOf } from "../../engine/graph/standard-ops.ts";
import type { Value } from "../../engine/graph/value.ts";
import { attendToChunkInPieces, chunkPieces } from "../../engine/models/decoder-graph/chunk-pieces.ts";
import { Session } from "../../engine/runtime/session.ts";
import { Tensor } from "../../engine/runtime/tensor.ts";
import { ratioFigure, reportProgress, speedsByTurns } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { fillRandom, shape } from "./shape.ts";

const { numHeads, numKvHeads, headDim } = shape;
const chunks = [
  { numTokens: 256, numPast: 0 },
  { numTokens: 512, numPast: 0 },
  { numTokens: 512, numPast: 512 },
] as const;
const turnsPerRound = 40;
const target = 1.1;

export async function benchChunkPieces(rounds: number): Promise<Figure[]> {
  using whole = loadAttention(false);
  using inPieces = loadAttention(true);
  return chunks.map(({ numTokens, numPast }) => {
    const name = `${numTokens} tokens after ${numPast}`;
    reportProgress(`attention, ${name}`);
    const [ours, theirs] = [inPieces, whole].map((session) => bindChunk(session, numTokens, numPast));
    const turns = { numTurns: rounds * turnsPerRound, amount: numTokens };
    const speeds = speedsByTurns({ ours: ours!, theirs: theirs! }, turns);
    return ratioFigure({ name, unit: "tok/s", ...speeds, target });
  });
}

function loadAttention(hasPieces: boolean): Session {
  const graph = new GraphBuilder("attention");
  const [numQueryFeatures, numKeyFeatures] = [numHeads * headDim, numKvHeads * headDim];
  const end = graph.input("past_length", "int64", [1]);
  const past = (part: string): Value => {
    const cache = graph.input(`cache_${part}`, "float32", ["B", numKvHeads, "maxLen", headDim]);
    return sliceBefore(graph, `past_${part}`, cache, { axis: 2, end, size: "past" });
  };
  const query = graph.input("query", "float32", ["B", "S", numQueryFeatures]);
  const totalSequenceLength = graph.input("total_sequence_length", "int32", []);
  const inputs = {
    query,
    key: graph.input("key", "float32", ["B", "S", numKeyFeatures]),
    value: graph.input("value", "float32", ["B", "S", numKeyFeatures]),
    pastKey: past("key"),
    pastValue: past("value"),
    presentLength: "present",
    seqlensK: graph.input("seqlens_k", "int32", ["B"]),
    totalSequenceLength,
    rotary: null,
    numHeads,
    numKvHeads,
    headDim,
    localWindowSize: null,
    scale: null,
    headSink: graph.constant(
      "no_sink",
      "float32",
      [numHeads],
      Array.from({ length: numHeads }, () => -1e30),
    ),
    presentKeyName: "present_key",
    presentValueName: "present_value",
  };
  const inputShape = shapeOf(graph, "shape", query, 2);
  const numTokens = gatherRows(graph, "length", inputShape, int64Scalar(graph, 1));
  const sizes = { length: "S", tokens: "N" };
  const output = hasPieces
    ? attendToChunkInPieces(
        { graph },
        "attended",
        inputs,
        chunkPieces({ graph }, { inputShape, totalSequenceLength, prefix: "", sizes }, numTokens),
      )
    : groupQueryAttention(graph, "attended", inputs).output;
  graph.output(output);
  // The threads of one session would spin on the cores while the other runs.
  return Session.fromBytes(graph.encode(), { device: "cpu", deviceId: 0, numThreads: 1 });
}

/** Returns a function that computes the chunk. */
function bindChunk(session: Session, numTokens: number, numPast: number): () => void {
  const binding = session.createBinding();
  const random = (seed: number, size: readonly number[]): Tensor => {
    const values = new Float32Array(size.reduce((product, dimension) => product * dimension, 1));
    fillRandom(values, 1, seed);
    return Tensor.fromTypedArray("float32", values, size);
  };
  const total = numPast + numTokens;
  const inputs: Readonly<Record<string, Tensor>> = {
    query: random(1, [1, numTokens, numHeads * headDim]),
    key: random(2, [1, numTokens, numKvHeads * headDim]),
    value: random(3, [1, numTokens, numKvHeads * headDim]),
    cache_key: random(4, [1, numKvHeads, numPast, headDim]),
    cache_value: random(5, [1, numKvHeads, numPast, headDim]),
    past_length: Tensor.fromTypedArray("int64", BigInt64Array.of(BigInt(numPast)), [1]),
    seqlens_k: Tensor.fromTypedArray("int32", Int32Array.of(total - 1), [1]),
    total_sequence_length: Tensor.fromTypedArray("int32", Int32Array.of(total), []),
  };
  for (const [name, tensor] of Object.entries(inputs)) binding.bindInput(name, tensor);
  const output = new Float32Array(numTokens * numHeads * headDim);
  binding.bindOutput("attended", Tensor.fromTypedArray("float32", output, [1, numTokens, numHeads * headDim]));
  return () => binding.run();
}
