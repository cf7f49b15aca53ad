/**
 * A pool of image features on a device whose tensors are handles of buffers (WebGPU): rows are written and read by two
 * small graphs without weights, because a tensor cannot be a view of rows within another.
 */
import type { DeviceName } from "../contract/config.ts";
import { GraphBuilder } from "../graph/graph-builder.ts";
import { scatterAlongFirstAxis } from "../graph/selection-ops.ts";
import { expand, gatherRows, reshape } from "../graph/standard-ops.ts";
import { bytesPerElement } from "../runtime/element-type.ts";
import type { ProviderOptions } from "../runtime/execution-provider.ts";
import { Session } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";
import { PoolRows } from "./feature-pool.ts";
import type { FeaturePool, FeaturePoolSizes, PooledRows } from "./feature-pool.ts";

/** Every adapter binds a buffer of this size to a kernel: the default of WebGPU's `maxStorageBufferBindingSize`. */
const MAX_POOL_BYTES = 2 ** 27;

/** Mutable; owns the memory and its sessions. */
export class GraphPool implements FeaturePool {
  /** Copies are made by the thread that computes: ONNX Runtime's WebGPU context has no lock. */
  readonly isBeingRead = false;
  readonly device: DeviceName;
  readonly #width: number;
  readonly #rows: PoolRows;
  readonly #writer: Session;
  readonly #reader: Session;
  /** float32 [rows, width]: rows of images, then those of a run. */
  readonly #tensor: Tensor<"float32">;

  /** @throws EngineError `runtime_failed` if the device lacks a kernel or memory. */
  constructor(device: DeviceName, options: ProviderOptions, { width, numRows, maxRunRows }: FeaturePoolSizes) {
    using loaded = new DisposableStack();
    const load = (graph: GraphBuilder): Session =>
      loaded.use(Session.fromBytes(graph.encode(), { ...options, device, numThreads: 1 }));
    this.device = device;
    this.#width = width;
    const mostRows = Math.floor(MAX_POOL_BYTES / (width * bytesPerElement("float32")));
    this.#rows = new PoolRows(Math.max(0, Math.min(numRows, mostRows - maxRunRows)), 1);
    this.#writer = load(buildWriter(width));
    this.#reader = load(buildReader(width));
    this.#tensor = this.#writer.allocateTensor("float32", [this.#rows.numRows + maxRunRows, width]);
    loaded.move();
  }

  take(numRows: number): PooledRows | null {
    return this.#rows.take(numRows);
  }

  release(rows: PooledRows): void {
    this.#rows.release(rows);
  }

  write({ firstRow, numRows }: PooledRows, fill: (target: Tensor<"float32">) => void): void {
    using features = this.#writer.allocateTensor("float32", [1, numRows, this.#width]);
    fill(features);
    this.#scatter(features, firstRow, numRows);
  }

  async read({ firstRow, numRows }: PooledRows, target: Float32Array): Promise<void> {
    using features = this.gather(BigInt64Array.from({ length: numRows }, (_, row) => BigInt(firstRow + row)));
    features.copyInto(target);
  }

  placeForRun(features: Float32Array): number {
    const firstRow = this.#rows.numRows;
    const numRows = features.length / this.#width;
    using source = Tensor.fromTypedArray("float32", features, [1, numRows, this.#width]);
    this.#scatter(source, firstRow, numRows);
    return firstRow;
  }

  /** The rows in this order, [rows.length, width], at least one, on the device. The caller disposes of it. */
  gather(rows: BigInt64Array): Tensor<"float32"> {
    using binding = this.#reader.createBinding();
    using indices = Tensor.fromTypedArray("int64", rows, [rows.length]);
    using gathered = new DisposableStack();
    const target = gathered.use(this.#reader.allocateTensor("float32", [rows.length, this.#width]));
    binding.bindInput("pool", this.#tensor);
    binding.bindInput("rows", indices);
    binding.bindOutput("gathered", target);
    binding.run();
    gathered.move();
    return target;
  }

  [Symbol.dispose](): void {
    this.#tensor[Symbol.dispose]();
    this.#reader[Symbol.dispose]();
    this.#writer[Symbol.dispose]();
  }

  #scatter(features: Tensor<"float32">, firstRow: number, numRows: number): void {
    using binding = this.#writer.createBinding();
    const indices = Int32Array.from({ length: numRows }, (_, row) => firstRow + row);
    using rows = Tensor.fromTypedArray("int32", indices, [numRows, 1]);
    using shape = Tensor.fromTypedArray("int64", BigInt64Array.of(BigInt(numRows), BigInt(this.#width)), [2]);
    binding.bindInput("pool", this.#tensor);
    binding.bindInput("features", features);
    binding.bindInput("rows", rows);
    binding.bindInput("shape", shape);
    binding.bindOutput("written", this.#tensor);
    binding.run();
  }
}

/**
 * Writes rows into the pool, which is input and output. `ScatterElements` is given a row for every number: its kernel
 * writes them in parallel.
 */
function buildWriter(width: number): GraphBuilder {
  const graph = new GraphBuilder("write_features");
  const data = graph.input("pool", "float32", ["P", width]);
  const features = graph.input("features", "float32", [1, "M", width]);
  const rows = graph.input("rows", "int32", ["M", 1]);
  const shape = graph.input("shape", "int64", [2]);
  const updates = reshape(graph, "updates", features, shape, ["M", width]);
  const indices = expand(graph, "indices", rows, shape, ["M", width]);
  graph.output(scatterAlongFirstAxis(graph, "written", { data, indices, updates }));
  return graph;
}

function buildReader(width: number): GraphBuilder {
  const graph = new GraphBuilder("read_features");
  const pool = graph.input("pool", "float32", ["P", width]);
  graph.output(gatherRows(graph, "gathered", pool, graph.input("rows", "int64", ["M"])));
  return graph;
}
