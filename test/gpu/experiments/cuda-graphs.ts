/** 7: decode steps as captured graphs against eager ones. On the CPU both sides are eager. */
import type { BuiltModel, DecoderGraph } from "../../../engine/models/built-model.ts";
import { cudaMemoryBytes } from "../../../engine/runtime/cuda-memory.ts";
import { RunOptions } from "../../../engine/runtime/run-options.ts";
import { Session } from "../../../engine/runtime/session.ts";
import type { Experiment, ExperimentContext } from "../experiment.ts";
import { buildRandomModel, fastBlockSize, smallShape, tinyShape } from "../models.ts";
import { relativeError, requireFloat, toleranceOf } from "../numbers.ts";
import { PackedCaches, PackedStep } from "../packed-steps.ts";
import { medianOf, timeRuns } from "../timing.ts";

export const cudaGraphs: Experiment = {
  id: "7",
  title: "Decode steps as CUDA graphs",
  async run(context) {
    const { device, folder, report } = context;
    const isSmall = device === "cpu";
    const shape = isSmall ? tinyShape : smallShape;
    const dtype = context.dtype ?? (isSmall ? "float32" : "float16");
    const blockSize = fastBlockSize(device, shape.headDim);
    const kvLayout = { kind: "paged", blockSize } as const;
    const model = await buildRandomModel({ shape, dtype, device, kvLayout, maxModelLen: 4096, folder });
    const { decoder: graph } = model;
    if (graph.form !== "in-place") throw new Error("random models are graphs of ours");
    using eager = load(context, model, {});
    using captured = load(context, model, isSmall ? {} : { enable_cuda_graph: "1" });
    using pair = new Pair(context, graph, eager, captured, blockSize);
    const counts = isSmall ? [1, 3] : [1, 8, 32, 128];
    for (const [index, numSequences] of counts.entries()) {
      await report.attempt(`${numSequences} sequences`, () => pair.compare(numSequences, index + 1));
    }
    await report.attempt("many graphs", () => pair.captureMany(isSmall ? 3 : 40, counts.length + 1));
  },
};

function load(
  { device }: ExperimentContext,
  { decoder, externalDataFolder }: BuiltModel,
  cudaProviderOptions: Record<string, string>,
): Session {
  return Session.load(decoder.path, { device, deviceId: 0, numThreads: 2, externalDataFolder, cudaProviderOptions });
}

/** Of a sequence of the steps here. */
const blocksPerSequence = 3;
/** Enough for 128 sequences without a block in common. */
const numBlocks = 400;
const numColumns = 8;
const numSteps = 24;

/** The same steps on an eager session and on one that captures; mutable. */
class Pair implements Disposable {
  readonly #context: ExperimentContext;
  readonly #graph: DecoderGraph;
  readonly #blockSize: number;
  readonly #owned = new DisposableStack();
  readonly #eager: { readonly session: Session; readonly caches: PackedCaches };
  readonly #captured: { readonly session: Session; readonly caches: PackedCaches };

  constructor(context: ExperimentContext, graph: DecoderGraph, eager: Session, captured: Session, blockSize: number) {
    this.#context = context;
    this.#graph = graph;
    this.#blockSize = blockSize;
    const withCaches = (session: Session) => ({
      session,
      caches: this.#owned.use(new PackedCaches(session, graph, [numBlocks, blockSize])),
    });
    this.#eager = withCaches(eager);
    this.#captured = withCaches(captured);
  }

  /** Lengths grow, the block tables change in between, and a prompt is computed eagerly on the capturing session. */
  compare(numSequences: number, graphId: number): void {
    const { report, dtype, device } = this.#context;
    const decode = { spanLength: 1, numSequences, numColumns };
    // The captured step must hold for every length that its columns have; the eager one is told the truth as it is now.
    const bound = numColumns * this.#blockSize;
    using left = this.#step(this.#eager, decode, [1, bound, 1]);
    using right = this.#step(this.#captured, decode, [1, bound, 1]);
    using options = this.#optionsOf(graphId);
    const prompt = { spanLength: 16, numSequences: 1, numColumns };
    using leftPrompt = this.#step(this.#eager, prompt, [16, 16, 16]);
    using rightPrompt = this.#step(this.#captured, prompt, [16, 16, 16]);
    using eagerly = this.#optionsOf(-1);
    let error = 0;
    let captureMs = 0;
    for (let step = 0; step < numSteps; step++) {
      const pasts = Array.from({ length: numSequences }, (_, row) => step + ((row * 29) % (this.#blockSize - 1)));
      const ids = pasts.map((past, row) => 2 + ((past * 31 + row * 17) % 500));
      const table = this.#table(numSequences, step < numSteps / 2 ? 0 : 7);
      for (const side of [left, right]) side.write(ids, pasts, table);
      left.run();
      const startedAt = performance.now();
      right.run(options);
      if (step === 0) captureMs = performance.now() - startedAt;
      error = Math.max(error, relativeError(right.readLogits(), left.readLogits()));
      if (step % 8 !== 3) continue;
      const promptTable = [numBlocks - 1, ...Array.from({ length: numColumns - 1 }, () => -1)];
      const tokens = Array.from({ length: 16 }, (_, index) => 3 + index);
      for (const side of [leftPrompt, rightPrompt]) side.write(tokens, [0], promptTable);
      leftPrompt.run();
      rightPrompt.run(eagerly);
      error = Math.max(error, relativeError(rightPrompt.readLogits(), leftPrompt.readLogits()));
    }
    const tolerance = toleranceOf[requireFloat(this.#graph.kvElementType)];
    const label = `${numSequences} sequences${dtype === null ? "" : ` in ${dtype}`}`;
    report.check(
      `${label}: captured steps give what eager ones give`,
      error <= tolerance,
      `error ${error.toExponential(1)}`,
    );
    const numRuns = device === "cpu" ? 4 : 100;
    const eagerMs = medianOf(timeRuns(() => left.run(), { numRuns }));
    const capturedMs = medianOf(timeRuns(() => right.run(options), { numRuns }));
    report.figure(`${label}: first run, with the capture`, captureMs, "ms");
    report.figure(`${label}: an eager step`, eagerMs, "ms");
    report.figure(`${label}: a captured step`, capturedMs, "ms");
    report.figure(`${label}: gain`, eagerMs / capturedMs, "times");
  }

  /** Graphs are kept for the life of their session. */
  captureMany(count: number, firstId: number): void {
    const { report, device } = this.#context;
    const freeBytes = (): number => (device === "cuda" ? cudaMemoryBytes(0).freeBytes : 0);
    const before = freeBytes();
    const startedAt = performance.now();
    for (let index = 0; index < count; index++) {
      const numSequences = index + 2;
      using step = this.#step(this.#captured, { spanLength: 1, numSequences, numColumns }, [
        1,
        numColumns * this.#blockSize,
        1,
      ]);
      using options = this.#optionsOf(firstId + index);
      const zeros = Array.from({ length: numSequences }, () => 0);
      step.write(zeros, zeros, this.#table(numSequences, 0));
      step.run(options);
      const logits = step.readLogits();
      report.check(`graph ${index + 1} of ${count} computes numbers`, logits.every(Number.isFinite));
    }
    report.figure("a capture", (performance.now() - startedAt) / count, "ms");
    report.figure("memory of a graph", (before - freeBytes()) / count / 2 ** 20, "MiB");
  }

  [Symbol.dispose](): void {
    this.#owned[Symbol.dispose]();
  }

  #step(
    side: { readonly session: Session; readonly caches: PackedCaches },
    shape: ConstructorParameters<typeof PackedStep>[3],
    metadata: readonly [number, number, number],
  ): PackedStep {
    return new PackedStep(side.session, this.#graph, side.caches, shape, metadata);
  }

  #optionsOf(graphId: number): RunOptions {
    return new RunOptions(this.#context.device === "cuda" ? { gpu_graph_id: String(graphId) } : {});
  }

  /** Blocks of its own for each sequence; those beyond what the steps reach are not mapped. */
  #table(numSequences: number, shift: number): number[] {
    return Array.from({ length: numSequences }, (_, row) =>
      Array.from({ length: numColumns }, (_, column) =>
        column < blocksPerSequence ? 1 + ((row * blocksPerSequence + column + shift) % (numBlocks - 2)) : -1,
      ),
    ).flat();
  }
}
