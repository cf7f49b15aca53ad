/**
 * The host's share of a decode step of 64 sequences over a paged KV cache: scheduler, block tables, inputs, sampling
 * and outputs, with a session that computes next to nothing. The session's own time is measured beside it.
 */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { performance } from "node:perf_hooks";

import { createEngineCore } from "../../engine/core/create-engine-core.ts";
import type { EngineRequest } from "../../engine/core/engine-request.ts";
import { packedLayouts } from "../../engine/decoder/packed-inputs.ts";
import { gatherRows, subtract } from "../../engine/graph/standard-ops.ts";
import { createSamplingParams } from "../../engine/index.ts";
import type { SamplingParams } from "../../engine/index.ts";
import type { BuiltModel } from "../../engine/models/built-model.ts";
import { numCandidatesOf, outputCandidates } from "../../engine/models/decoder-graph/candidates.ts";
import { createGraphContext, logitRows } from "../../engine/models/graph-context.ts";
import { imaginedWeights } from "../../engine/models/weight-source.ts";
import { Session } from "../../engine/runtime/session.ts";
import { Tensor } from "../../engine/runtime/tensor.ts";
import type { ToEngineThread } from "../../engine/thread/messages.ts";
import { benchConfig } from "./engine-throughput.ts";
import { limitFigure, median, plainFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { benchFolder, engineOptions } from "./settings.ts";
import { fillRandom } from "./shape.ts";

const numSequences = 64;
const vocabSize = 128;
const blockSize = 16;
const maxModelLen = 4096;
const numWarmUpSteps = 200;
const numSteps = 1500;
const maxHostMs = 0.5;

const scenarios: readonly { readonly name: string; readonly params: Partial<SamplingParams> }[] = [
  { name: "greedy", params: { temperature: 0 } },
  { name: "temperature 0.8, top-k 40, top-p 0.95", params: { temperature: 0.8, topK: 40, topP: 0.95 } },
];

/** @param rounds How often each side is measured, alternately. */
export async function benchHostStep(rounds: number): Promise<Figure[]> {
  const model = await writeIdleModel();
  const figures: Figure[] = [];
  const session: number[] = [];
  for (const { name, params } of scenarios) {
    const steps: number[] = [];
    for (let round = 0; round < rounds; round++) {
      reportProgress(`host step, ${name}, round ${round + 1} of ${rounds}`);
      const sessionMs = measureSession(model);
      session.push(sessionMs);
      steps.push((await measureSteps(model, params)) - sessionMs);
    }
    figures.push(
      limitFigure({
        name: `host's share of a step of ${numSequences} sequences, ${name}`,
        unit: "ms",
        values: steps,
        comparison: "<=",
        limit: maxHostMs,
      }),
    );
  }
  return [...figures, plainFigure("the idle session itself", "ms", session)];
}

/** A decoder without layers: each row of logits is the same, and nothing is kept. */
async function writeIdleModel(): Promise<BuiltModel> {
  const precision = { kind: "plain", elementType: "float32" } as const;
  const context = createGraphContext("idle", {
    weights: imaginedWeights,
    precision: { activations: "float32", linear: precision, head: precision, vision: precision },
    device: "cpu",
    kvLayout: { kind: "paged", blockSize },
  });
  const { graph } = context;
  for (const [name, { elementType, shape }] of Object.entries(
    packedLayouts({ numTokens: 1, numSequences: 1, numColumns: 1, numRows: 1 }),
  )) {
    if (name === "positions" || name === "image_rows" || name === "logit_rows" || name === "inverse_temperature")
      continue;
    graph.input(
      name,
      elementType,
      shape.map((_, axis) => `${name}.${axis}`),
    );
  }
  const rows = graph.input("logit_rows", "int64", [logitRows]);
  const values = new Float32Array(vocabSize);
  fillRandom(values, 1, 7);
  const table = graph.constant("table", "float32", [1, vocabSize], values);
  const logits = gatherRows(graph, "logits", table, subtract(graph, "no_rows", rows, rows));
  graph.output(logits, [logitRows, vocabSize]);
  outputCandidates(context, logits, vocabSize);
  await mkdir(benchFolder, { recursive: true });
  const path = join(benchFolder, "idle.onnx");
  await writeFile(path, graph.encode());
  return {
    architecture: "Idle",
    externalDataFolder: undefined,
    decoder: {
      form: "in-place",
      kvLayout: { kind: "paged", blockSize },
      numCandidates: numCandidatesOf(vocabSize),
      path,
      weightBytes: 0,
      weights: [],
      numLayers: 0,
      numKvHeads: 1,
      headDim: 8,
      hiddenSize: 8,
      imageWidth: 8,
      vocabSize,
      kvElementType: "float32",
      acceptsImages: false,
      takesPositions: false,
    },
    visionEncoder: null,
    maxPositionEmbeddings: maxModelLen,
    imageTokenId: null,
    contentHash: "idle",
  };
}

/** Median of a step in which all sequences decode, in milliseconds. */
async function measureSteps(model: BuiltModel, params: Partial<SamplingParams>): Promise<number> {
  const messages: ToEngineThread[] = [];
  const config = {
    ...benchConfig({ ...engineOptions("float32"), model: "idle" }),
    maxNumSequences: numSequences,
    maxNumBatchedTokens: 8192,
    numBlocks: numSequences * (maxModelLen / blockSize) + 1,
  };
  using core = await createEngineCore(
    { config, model, maxModelLen, eosTokenIds: [], maxEmbeddingsPerImage: 0, warmUpImage: null },
    () => messages.splice(0),
  );
  for (let index = 0; index < numSequences; index++) messages.push({ kind: "add", request: requestOf(index, params) });
  core.drainMessages();
  for (let step = 0; step < numWarmUpSteps; step++) core.step();
  const times = Array.from({ length: numSteps }, () => {
    const start = performance.now();
    core.step();
    return performance.now() - start;
  });
  return median(times);
}

function requestOf(index: number, params: Partial<SamplingParams>): EngineRequest {
  return {
    requestId: `${index}`,
    promptTokenIds: Array.from({ length: 32 }, (_, place) => (place * 7 + index) % vocabSize),
    images: [],
    samplingParams: createSamplingParams({ maxTokens: maxModelLen - 64, ignoreEos: true, ...params }),
    badWordsTokenIds: [],
    cacheSalt: null,
    grammar: null,
    seed: index,
  };
}

/** Median of a run with the same inputs and outputs, in milliseconds. */
function measureSession({ decoder }: BuiltModel): number {
  using session = Session.load(decoder.path, { device: "cpu", deviceId: 0, numThreads: 1 });
  const binding = session.createBinding();
  using owned = new DisposableStack();
  const bind = (kind: "bindInput" | "bindOutput", name: string, tensor: Tensor): void =>
    binding[kind](name, owned.use(tensor));
  const rows = BigInt64Array.from({ length: numSequences }, (_, row) => BigInt(row));
  const numCandidates = numCandidatesOf(vocabSize);
  bind("bindInput", "input_ids", Tensor.fromTypedArray("int64", rows, [numSequences]));
  bind("bindInput", "cumulative_lengths", Tensor.fromTypedArray("int32", new Int32Array(65), [65]));
  bind("bindInput", "past_lengths", Tensor.fromTypedArray("int32", new Int32Array(64), [numSequences]));
  bind("bindInput", "block_table", Tensor.fromTypedArray("int32", new Int32Array(64 * 8), [numSequences, 8]));
  bind("bindInput", "logit_rows", Tensor.fromTypedArray("int64", rows, [numSequences]));
  const temperatures = new Float32Array(numSequences).fill(1);
  bind("bindInput", "inverse_temperature", Tensor.fromTypedArray("float32", temperatures, [numSequences, 1]));
  const floats = (...shape: readonly number[]): Tensor =>
    Tensor.fromTypedArray("float32", new Float32Array(shape.reduce((product, size) => product * size, 1)), shape);
  bind("bindOutput", "logits", floats(numSequences, vocabSize));
  bind("bindOutput", "candidate_logits", floats(numSequences, numCandidates));
  const ids = new Int32Array(numSequences * numCandidates);
  bind("bindOutput", "candidate_ids", Tensor.fromTypedArray("int32", ids, [numSequences, numCandidates]));
  bind("bindOutput", "mass", floats(numSequences));
  for (let run = 0; run < numWarmUpSteps; run++) binding.run();
  const times = Array.from({ length: numSteps }, () => {
    const start = performance.now();
    binding.run();
    return performance.now() - start;
  });
  return median(times);
}
