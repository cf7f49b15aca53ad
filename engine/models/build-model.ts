/**
 * Turns a checkpoint into ONNX files: parses the configuration, prepares weights, builds and writes graphs. A
 * ready-made export provides its own files.
 */
import { createHash } from "node:crypto";
import { access, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";

import { invariant } from "../contract/errors.ts";
import { timePhase } from "../contract/start-phase.ts";
import type { OnStartPhase } from "../contract/start-phase.ts";
import { externalDataFolder } from "../graph/external-data.ts";
import type { GraphBuilder } from "../graph/graph-builder.ts";
import { requireTensorsOf } from "../weights/adapters/adapter-set.ts";
import { prepareAdapters } from "../weights/adapters/prepare-adapters.ts";
import { writeAtomically } from "../weights/atomic-file.ts";
import type { Checkpoint } from "../weights/checkpoint.ts";
import { belongsTo, chooseOnnxFiles, onnxFolder } from "../weights/onnx-variants.ts";
import { prepareWeights } from "../weights/prepare-weights.ts";
import type { PreparedWeight } from "../weights/prepared-weights.ts";
import type { WeightProgress } from "../weights/progress.ts";
import type { BuiltModel, DecoderGraph } from "./built-model.ts";
import { takesAdapterColumns } from "./decoder-graph/adapter-inputs.ts";
import { numCandidatesOf } from "./decoder-graph/candidates.ts";
import { outputWidthOf, withOutputWidth } from "./decoder-shape.ts";
import type { KvPrecision } from "./graph-context.ts";
import { findKvSteps } from "./kv-steps/find-kv-steps.ts";
import { configureGraphs, type GraphOptions, type ModelGraphs } from "./model-graphs.ts";
import { openExport } from "./onnx-export/open-export.ts";
import { refuseVisionParts } from "./vision-parts.ts";
import { changedTensors, createPreparedSource, WeightCollector } from "./weight-source.ts";
import { withoutEqualBranches } from "./widened-layers.ts";

export interface BuildModelOptions extends GraphOptions {
  /** Receives prepared weights and ONNX files. */
  readonly cacheFolder: string;
  /** Threads that prepare weights. */
  readonly numThreads: number;
  readonly onProgress?: (progress: WeightProgress) => void;
  readonly signal?: AbortSignal;
  readonly onPhase?: OnStartPhase;
  /** Tokens of a text that shows the ranges of keys and values. Asked for only where 8 bits are wanted. */
  readonly sampleTokens?: () => Promise<readonly number[]>;
  /** Receives the files of the weights as soon as they are known. */
  readonly onWeightFiles?: (paths: readonly string[]) => void;
}

/**
 * @throws EngineError `unsupported_model` and `invalid_checkpoint` (both name the field or tensor),
 *   `invalid_configuration` for a dtype or KV layout that the device lacks or a length above the checkpoint's,
 *   `aborted`.
 */
export async function buildModel(checkpoint: Checkpoint, asked: BuildModelOptions): Promise<BuiltModel> {
  if (checkpoint.onnxFileNames !== null) {
    refuseVisionParts(asked, "The parts of a ready-made ONNX export have the types and the device of the whole.");
    const chosen = chooseOnnxFiles(checkpoint.onnxFileNames, asked);
    const names = checkpoint.onnxFileNames.filter((name) => belongsTo(name, chosen));
    asked.onWeightFiles?.(names.map((name) => join(checkpoint.folder, onnxFolder, name)));
    return (await openExport(checkpoint, checkpoint.onnxFileNames, asked)).model;
  }
  const options = withoutEqualBranches(checkpoint, asked);
  const configured = configureGraphs(checkpoint.config, options);
  const { definition, model, precision, visionParts, kvLayout, maxModelLen } = configured;
  const { kvPrecision = { kind: "activations" } } = options;
  const { tensors, adapters = [] } = checkpoint;
  const collector = new WeightCollector(tensors, adapters);
  configured.buildDecoder(collector);
  requireTensorsOf(adapters, changedTensors(collector));
  configured.buildVisionEncoder(collector);
  const requests = [...collector.requests.values()];
  const prepared = await timePhase("quantise", options.onPhase, () => prepareWeights(checkpoint, requests, options));
  options.onWeightFiles?.(filesOf(prepared));
  const base = createPreparedSource(prepared, tensors);
  const matrices = await prepareAdapters(adapters, [...collector.adapterRequests.values()], options);
  const source = adapters.length === 0 ? base : createPreparedSource(prepared, tensors, { adapters, matrices });
  const visionGraph = configured.buildVisionEncoder(source);
  const folder = resolve(options.cacheFolder, "graphs");
  const buildDecoder = async (kvPrecision: KvPrecision, weights = source): Promise<DecoderGraph> => {
    const graphs = configureGraphs(checkpoint.config, { ...options, kvPrecision });
    const { graph } = graphs.buildDecoder(weights);
    const shape = withOutputWidth(model.decoder, options.output);
    return {
      form: "in-place",
      kvLayout,
      numCandidates: kvLayout.kind === "paged" ? numCandidatesOf(outputWidthOf(shape)) : 0,
      path: await writeGraph(folder, graph),
      weightBytes: graph.externalBytes,
      weights: graph.externalTensors,
      takesPositions: false,
      ...shape,
      kvElementType: graphs.kvElementType,
      acceptsImages: model.visionEncoder !== null,
      ...(kvPrecision.kind === "fp8" && { storesFp8: true }),
      ...(precision.prompts !== undefined && { widensPrompts: true }),
      ...(weights.adapters !== undefined && {
        adapters: { ranks: weights.adapters.ranks, takesColumns: takesAdapterColumns({ ...options, kvLayout }) },
      }),
    };
  };
  const isMeasured = kvPrecision.kind !== "int8" || kvPrecision.steps !== null;
  return {
    architecture: definition.architecture,
    externalDataFolder,
    decoder: await buildDecoder(
      isMeasured
        ? kvPrecision
        : {
            kind: "int8",
            steps: await measureSteps(await buildDecoder({ kind: "activations" }, base), maxModelLen, options),
          },
    ),
    visionEncoder:
      model.visionEncoder === null || visionGraph === null
        ? null
        : {
            form: "in-place",
            path: await writeGraph(folder, visionGraph.graph),
            weightBytes: visionGraph.graph.externalBytes,
            weights: visionGraph.graph.externalTensors,
            ...(visionParts !== null && { device: visionParts.vision.device }),
            inputs: model.visionEncoder.inputs,
            imageSize: model.visionEncoder.imageSize,
            numImageTokens: model.visionEncoder.numImageTokens,
            ...(model.visionEncoder.imageOptions && { imageOptions: model.visionEncoder.imageOptions }),
          },
    maxPositionEmbeddings: model.maxPositionEmbeddings,
    imageTokenId: model.imageTokenId,
    contentHash: await modelContentHash(checkpoint, { precision, visionParts }, options.signal),
  };
}

/** Tokens that are enough to show the ranges; a longer text changes them by less than the headroom. */
const MAX_SAMPLE_TOKENS = 512;

async function measureSteps(
  decoder: DecoderGraph,
  maxModelLen: number,
  { sampleTokens, numThreads, cacheFolder, signal }: BuildModelOptions,
): Promise<Float32Array[]> {
  invariant(sampleTokens !== undefined, "8-bit keys and values are measured with a text");
  const known = (await sampleTokens()).filter((tokenId) => tokenId < decoder.vocabSize);
  const tokenIds = known.slice(0, Math.min(MAX_SAMPLE_TOKENS, maxModelLen));
  return findKvSteps({ decoder, externalDataFolder, numThreads, tokenIds }, { cacheFolder, signal });
}

function filesOf(prepared: ReadonlyMap<string, PreparedWeight>): string[] {
  const tensors = [...prepared.values()].flatMap(({ weight, scales }) =>
    scales === null ? [weight] : [weight, scales],
  );
  return [...new Set(tensors.map(({ file }) => file))];
}

/**
 * Named by its content, including the paths of weight files, so that equal graphs are written once and none is stale.
 */
async function writeGraph(folder: string, graph: GraphBuilder): Promise<string> {
  const bytes = graph.encode();
  const path = join(folder, `${createHash("sha256").update(bytes).digest("hex")}.onnx`);
  const exists = await access(path).then(
    () => true,
    () => false,
  );
  if (!exists) await writeAtomically(path, `a graph of ${bytes.byteLength} bytes`, (file) => writeFile(file, bytes));
  return path;
}

/** Increase it when the same checkpoint and precision compute other numbers. */
const GRAPH_VERSION = 1;

/** Hash of weights, configuration and precision. Reads all weights the first time. */
export async function modelContentHash(
  checkpoint: Checkpoint,
  { precision, visionParts }: Pick<ModelGraphs, "precision" | "visionParts">,
  signal?: AbortSignal,
): Promise<string> {
  const hash = createHash("sha256").update(await checkpoint.contentHash(signal === undefined ? {} : { signal }));
  const changed = visionParts === null || visionParts.areDefault ? [] : [visionParts.vision, visionParts.projector];
  return hash.update(JSON.stringify([GRAPH_VERSION, precision, ...changed])).digest("hex");
}
