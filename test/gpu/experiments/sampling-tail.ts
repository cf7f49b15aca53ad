/** 6: choosing candidates on the device: how long TopK and Softmax take, in which order ties come, and what they choose. */
import { GraphBuilder, standardDomain } from "../../../engine/graph/graph-builder.ts";
import { multiply } from "../../../engine/graph/standard-ops.ts";
import type { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { loadGraph } from "../experiment.ts";
import type { Experiment, ExperimentContext } from "../experiment.ts";
import { randomNumbers } from "../numbers.ts";
import { medianOf, timeRuns } from "../timing.ts";

const numCandidates = 64;

export const samplingTail: Experiment = {
  id: "6",
  title: "Candidates of the next token, chosen on the device",
  async run(context) {
    const { report, device } = context;
    const isSmall = device === "cpu";
    using session = loadGraph(context, "sampling-tail", buildTail());
    for (const vocabSize of isSmall ? [1000] : [32_000, 128_256, 262_144]) {
      for (const numRows of isSmall ? [3] : [1, 8, 32, 128]) {
        const label = `${numRows} rows of ${vocabSize}`;
        await report.attempt(label, () => measure(context, session, { numRows, vocabSize, label }));
      }
    }
    for (const vocabSize of isSmall ? [1000] : [49_152, 128_256]) {
      await report.attempt(`ties among ${vocabSize}`, () => ties(context, session, vocabSize));
    }
  },
};

/** `logits` [R, V] and `inverse_temperature` [R, 1] in; values and ids of the candidates and the first's probability out. */
function buildTail(): GraphBuilder {
  const graph = new GraphBuilder("sampling_tail");
  const logits = graph.input("logits", "float32", ["R", "V"]);
  const inverse = graph.input("inverse_temperature", "float32", ["R", 1]);
  const scaled = multiply(graph, "scaled", logits, inverse);
  const count = graph.constant("num_candidates", "int64", [1], [numCandidates]);
  const shape = ["R", numCandidates];
  const [values, ids] = graph.addNode({
    name: "candidates",
    operator: "TopK",
    domain: standardDomain,
    inputs: [scaled, count],
    outputs: [
      { name: "values", elementType: "float32", shape },
      { name: "ids", elementType: "int64", shape },
    ],
  });
  const [probabilities] = graph.addNode({
    name: "probabilities",
    operator: "Softmax",
    domain: standardDomain,
    inputs: [scaled],
    outputs: [{ name: "probabilities", elementType: "float32", shape: ["R", "V"] }],
  });
  const first = graph.constant("first", "int64", [1], [0]);
  const [firstIds] = graph.addNode({
    name: "first_ids",
    operator: "Gather",
    domain: standardDomain,
    inputs: [ids, first],
    attributes: { axis: { kind: "int", value: 1 } },
    outputs: [{ name: "first_ids", elementType: "int64", shape: ["R", 1] }],
  });
  const [largest] = graph.addNode({
    name: "largest",
    operator: "GatherElements",
    domain: standardDomain,
    inputs: [probabilities, firstIds],
    attributes: { axis: { kind: "int", value: 1 } },
    outputs: [{ name: "largest", elementType: "float32", shape: ["R", 1] }],
  });
  for (const output of [values, ids, largest]) graph.output(output);
  return graph;
}

interface TailResult {
  readonly values: Float32Array;
  readonly ids: BigInt64Array;
  /** Probability of each row's first candidate. */
  readonly largest: Float32Array;
}

interface TailOptions {
  readonly numRows: number;
  readonly vocabSize: number;
  readonly inverseTemperature?: number;
}

function runTail(
  session: Session,
  logits: Tensor,
  { numRows, inverseTemperature = 1 }: TailOptions,
  use: (run: () => void, result: TailResult) => void,
): void {
  using owned = new DisposableStack();
  using binding = session.createBinding();
  const values = new Float32Array(numRows * numCandidates);
  const ids = new BigInt64Array(numRows * numCandidates);
  const largest = new Float32Array(numRows);
  const inverse = new Float32Array(numRows).fill(inverseTemperature);
  binding.bindInput("logits", logits);
  binding.bindInput("inverse_temperature", owned.use(Tensor.fromTypedArray("float32", inverse, [numRows, 1])));
  const shape = [numRows, numCandidates];
  binding.bindOutput("values", owned.use(Tensor.fromTypedArray("float32", values, shape)));
  binding.bindOutput("ids", owned.use(Tensor.fromTypedArray("int64", ids, shape)));
  binding.bindOutput("largest", owned.use(Tensor.fromTypedArray("float32", largest, [numRows, 1])));
  binding.run();
  use(() => binding.run(), { values, ids, largest });
}

function measure(
  { report, device }: ExperimentContext,
  session: Session,
  { numRows, vocabSize, label }: TailOptions & { readonly label: string },
): void {
  const values = randomNumbers(numRows * vocabSize, 9, 8);
  using logits = session.allocateTensor("float32", [numRows, vocabSize]);
  logits.copyFrom(values);
  const inverseTemperature = 1.25;
  runTail(session, logits, { numRows, vocabSize, inverseTemperature }, (run, result) => {
    let isEqual = true;
    let error = 0;
    for (let row = 0; row < Math.min(numRows, 4); row++) {
      const scores = values.subarray(row * vocabSize, (row + 1) * vocabSize).map((value) => value * inverseTemperature);
      const order = Array.from(scores.keys()).sort((left, right) => scores[right]! - scores[left]! || left - right);
      const highest = scores[order[0]!]!;
      const total = scores.reduce((sum, score) => sum + Math.exp(score - highest), 0);
      for (let place = 0; place < numCandidates; place++) {
        const index = row * numCandidates + place;
        // Equal logits may stand in any order: the ties are another check.
        isEqual &&= scores[Number(result.ids[index])] === scores[order[place]!];
        error = Math.max(error, Math.abs(result.values[index]! - scores[order[place]!]!));
      }
      error = Math.max(error, Math.abs(result.largest[row]! * total - 1));
    }
    report.check(`${label}: the candidates are the host's`, isEqual && error < 1e-4, `error ${error.toExponential(1)}`);
    const numRuns = device === "cpu" ? 3 : 50;
    report.figure(`${label}: candidates to the host`, medianOf(timeRuns(run, { numRuns })) * 1000, "us");
    const fetch = medianOf(timeRuns(() => void logits.copyToHost(), { numRuns: Math.min(numRuns, 10) }));
    report.figure(`${label}: all logits to the host`, fetch * 1000, "us");
  });
}

/** Greedy decoding takes the lowest id among equal logits. */
function ties({ report }: ExperimentContext, session: Session, vocabSize: number): void {
  const values = new Float32Array(4 * vocabSize).fill(-1);
  const tied = [3, 17, 18, 511, vocabSize - 1];
  for (let row = 0; row < 3; row++) for (const id of tied.slice(row)) values[row * vocabSize + id] = 5;
  using logits = session.allocateTensor("float32", [4, vocabSize]);
  logits.copyFrom(values);
  runTail(session, logits, { numRows: 4, vocabSize }, (_, { ids }) => {
    const firsts = [0, 1, 2, 3].map((row) => Number(ids[row * numCandidates]));
    const expected = [3, 17, 18, 0];
    report.check(
      `ties among ${vocabSize}: the lowest id is first`,
      firsts.join() === expected.join(),
      firsts.join(", "),
    );
    const order = Array.from(ids.subarray(0, tied.length), Number);
    report.check(`ties among ${vocabSize}: ids are in order`, order.join() === tied.join(), order.join(", "));
  });
}
