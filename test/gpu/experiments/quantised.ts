/** 8: matrices of 4 and 8 bits, with the fused kernels and without, against 16 bits in time and the CPU in numbers. */
import { GraphBuilder } from "../../../engine/graph/graph-builder.ts";
import { matMulNBits } from "../../../engine/graph/quantised-ops.ts";
import { gemm } from "../../../engine/graph/standard-ops.ts";
import type { Session } from "../../../engine/runtime/session.ts";
import type { Tensor } from "../../../engine/runtime/tensor.ts";
import { loadGraph } from "../experiment.ts";
import type { Experiment, ExperimentContext } from "../experiment.ts";
import {
  createRandom,
  decode,
  emptyArray,
  encode,
  randomBelow,
  randomNumbers,
  relativeError,
  rounded,
} from "../numbers.ts";
import { medianOf, timeRuns } from "../timing.ts";

const blockSize = 32;

interface MatrixShape {
  readonly rows: number;
  readonly columns: number;
}

export const quantised: Experiment = {
  id: "8",
  title: "Matrices of 4 and 8 bits",
  async run(context) {
    const isSmall = context.device === "cpu";
    const shapes: readonly MatrixShape[] = isSmall
      ? [{ rows: 64, columns: 128 }]
      : [
          { rows: 4096, columns: 4096 },
          { rows: 14_336, columns: 4096 },
          { rows: 4096, columns: 14_336 },
        ];
    const counts = isSmall ? [1, 5] : [1, 2, 4, 8, 16, 32, 64, 128, 512];
    for (const shape of shapes) {
      const label = `${shape.rows} x ${shape.columns}`;
      if (!isSmall) await context.report.attempt(`${label} float16`, () => measurePlain(context, shape, counts));
      for (const bits of [4, 8] as const) {
        await context.report.attempt(`${label} int${bits}`, () => compare(context, shape, bits, counts));
      }
    }
  },
};

/** Of the largest product: what 16-bit sums over thousands of numbers may be off by. */
const tolerance = 1e-2;

function compare(context: ExperimentContext, shape: MatrixShape, bits: 4 | 8, counts: readonly number[]): void {
  const { device, report } = context;
  const elementType = device === "cuda" ? "float16" : "float32";
  const { rows, columns } = shape;
  const random = createRandom(bits);
  const numBlocks = columns / blockSize;
  const weight = Float32Array.from({ length: (rows * columns * bits) / 8 }, () => randomBelow(random, 256));
  const scales = rounded(elementType, randomNumbers(rows * numBlocks, 31, 0.02).map(Math.abs));
  const build = (type: "float16" | "float32"): GraphBuilder => {
    const graph = new GraphBuilder("quantised");
    const output = matMulNBits(graph, "y", {
      input: graph.input("x", type, ["M", columns]),
      quantised: {
        weight: graph.constant("weight", "uint8", [rows, numBlocks, (blockSize * bits) / 8], weight),
        scales: graph.constant("scales", type, [rows * numBlocks], scales),
        bits,
        blockSize,
      },
      bias: null,
      quantisesActivations: false,
    });
    graph.output(output);
    return graph;
  };
  using reference = loadGraph({ ...context, device: "cpu" }, `reference-int${bits}`, build("float32"));
  for (const fused of device === "cuda" ? ["1", "0"] : ["0"]) {
    const label = `${rows} x ${columns} int${bits}${fused === "1" ? " fused" : ""}`;
    const startedAt = performance.now();
    using session = loadGraph(context, `int${bits}-${fused}`, build(elementType), {
      configEntries: device === "cuda" ? { "ep.cuda.fpa_intb_gemm": fused } : {},
    });
    report.figure(`${label}: load`, performance.now() - startedAt, "ms");
    for (const count of counts) {
      const values = rounded(elementType, randomNumbers(count * columns, count));
      const times: number[] = [];
      const actual = multiplyOnce(session, elementType, values, [count, columns, rows], (run) => {
        times.push(...timeRuns(run, { numRuns: device === "cpu" ? 2 : 50 }));
      });
      const expected = multiplyOnce(reference, "float32", values, [count, columns, rows]);
      const error = relativeError(actual, expected);
      report.check(`${label}, ${count} rows: the CPU's numbers`, error <= tolerance, `error ${error.toExponential(1)}`);
      report.figure(`${label}, ${count} rows`, medianOf(times) * 1000, "us");
    }
  }
}

function measurePlain(context: ExperimentContext, { rows, columns }: MatrixShape, counts: readonly number[]): void {
  const graph = new GraphBuilder("plain");
  const x = graph.input("x", "float16", ["M", columns]);
  const weight = graph.constant("weight", "float16", [rows, columns], randomNumbers(rows * columns, 3, 0.02));
  graph.output(gemm(graph, "y", x, weight, null));
  using session = loadGraph(context, "plain", graph);
  for (const count of counts) {
    multiplyOnce(session, "float16", randomNumbers(count * columns, count), [count, columns, rows], (run) => {
      const medianMs = medianOf(timeRuns(run, { numRuns: 50 }));
      context.report.figure(`${rows} x ${columns} float16, ${count} rows`, medianMs * 1000, "us");
    });
  }
}

/** [count, rows]; input and output lie on the device while `use` runs it again. */
function multiplyOnce(
  session: Session,
  elementType: "float16" | "float32",
  values: Float32Array,
  [count, columns, rows]: readonly [number, number, number],
  use: (run: () => void) => void = () => {},
): Float32Array {
  using owned = new DisposableStack();
  using binding = session.createBinding();
  const x = owned.use(session.allocateTensor(elementType, [count, columns])) as Tensor<"float32">;
  x.copyFrom(encode(elementType, values) as Float32Array);
  const y = owned.use(session.allocateTensor(elementType, [count, rows])) as Tensor<"float32">;
  binding.bindInput("x", x);
  binding.bindOutput("y", y);
  binding.run();
  use(() => binding.run());
  const host = emptyArray(elementType, count * rows);
  host.set(y.copyToHost());
  return decode(elementType, host);
}
