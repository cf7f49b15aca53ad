/** Estimates the memory of a checkpoint's weights and runs from headers only, without preparing anything. */
import { peakBytes } from "../graph/peak-bytes.ts";
import { requireTensorsOf } from "../weights/adapters/adapter-set.ts";
import type { NamedAdapter } from "../weights/adapters/named-adapter.ts";
import { imagineMatrices } from "../weights/adapters/prepare-adapters.ts";
import type { Checkpoint } from "../weights/checkpoint.ts";
import type { StoredTensor } from "../weights/stored-tensor.ts";
import { planWeights, type PlannedWeight } from "../weights/weight-plan.ts";
import {
  batch,
  blockColumns,
  cachedTokens,
  cacheLength,
  imageKeys,
  imageTokens,
  length,
  longestRun,
  pastTokens,
  presentTokens,
  tailLength,
  tailTokens,
  tokens,
} from "./decoder-graph/sizes.ts";
import { embeddingTables } from "./decoder-graph/vocabulary.ts";
import { logitRows, type GraphContext } from "./graph-context.ts";
import { columnsOf } from "./low-rank.ts";
import type { DecoderDimensions, VisionEncoderDefinition } from "./model-definition.ts";
import type { ModelGraphs } from "./model-graphs.ts";
import { changedTensors, WeightCollector } from "./weight-source.ts";

export interface WeightBytes {
  /** The whole table. If it is mapped from the checkpoint, only the rows of tokens that occur become resident. */
  readonly embedding: number;
  readonly decoder: number;
  /** With the projector; 0 for a model that does not accept images. */
  readonly visionEncoder: number;
}

/** Parts of a decoder's weights of which each token reads a few. */
export interface ExpertBytes {
  /** All of them; a part of `WeightBytes.decoder`. */
  readonly all: number;
  /** Those that one token reads. */
  readonly perToken: number;
}

export interface ModelCosts {
  readonly weights: WeightBytes;
  /** Of adapters that requests choose; a part of `WeightBytes.decoder`. */
  readonly adapterBytes: number;
  /** Null for a decoder without experts. */
  readonly experts: ExpertBytes | null;
  /**
   * Peak memory of values between the nodes in a run. With KV slots, `numTokens` counts the tokens of each of the
   * `numSequences`; with a paged cache, those of all together.
   */
  decoderRunBytes(this: void, run: { readonly numSequences: number; readonly numTokens: number }): number;
  /** The same for one image with this many embeddings; 0 for a model that does not accept images. */
  visionRunBytes(this: void, numEmbeddings: number): number;
}

/** @throws EngineError `invalid_checkpoint` that names a tensor that is missing, has another shape or no float type. */
export function modelCosts({ tensors, adapters = [] }: Checkpoint, graphs: ModelGraphs): ModelCosts {
  const decoderWeights = new WeightCollector(tensors, adapters);
  const decoder = graphs.buildDecoder(decoderWeights);
  requireTensorsOf(adapters, changedTensors(decoderWeights));
  const visionWeights = new WeightCollector(tensors);
  const vision = graphs.buildVisionEncoder(visionWeights);
  const ofDecoder = decoderBytes(tensors, decoderWeights);
  const ofAdapters = bytesOfAdapters(adapters, decoderWeights);
  return {
    weights: {
      embedding: ofDecoder.embedding,
      decoder: ofDecoder.decoder + ofAdapters,
      visionEncoder: preparedBytes(tensors, visionWeights, new Set()),
    },
    adapterBytes: ofAdapters,
    experts: expertBytes(tensors, decoderWeights, graphs.model.decoder),
    ...runCosts(graphs, decoder, vision),
  };
}

/** Memory of runs of these graphs. */
export function runCosts(
  { model, maxModelLen, kvLayout }: Pick<ModelGraphs, "model" | "maxModelLen" | "kvLayout">,
  decoder: GraphContext,
  vision: GraphContext | null,
): Pick<ModelCosts, "decoderRunBytes" | "visionRunBytes"> {
  const { visionEncoder } = model;
  return {
    decoderRunBytes: ({ numSequences, numTokens }) =>
      peakBytes(
        decoder.graph,
        new Map([
          [batch, numSequences],
          [length, numTokens],
          [tokens, kvLayout.kind === "slots" ? numSequences * numTokens : numTokens],
          [tailLength, numTokens],
          [tailTokens, kvLayout.kind === "slots" ? numSequences * numTokens : numTokens],
          [longestRun, Math.ceil(numTokens / numSequences)],
          [imageTokens, model.imageTokenId === null ? 0 : numTokens],
          [logitRows, numSequences],
          [cacheLength, maxModelLen],
          [pastTokens, maxModelLen - numTokens],
          [presentTokens, maxModelLen],
          [cachedTokens, numSequences * maxModelLen],
          ["C * blockSize", maxModelLen],
          ...(kvLayout.kind === "paged" ? [[blockColumns, Math.ceil(maxModelLen / kvLayout.blockSize)] as const] : []),
          ...adapterColumns(decoder),
          [imageKeys, maxModelLen],
        ]),
      ),
    visionRunBytes: (numEmbeddings) =>
      vision === null || visionEncoder === null ? 0 : visionRunBytes(vision, visionEncoder, numEmbeddings),
  };
}

/** Packed layers are at most query, key and value. */
const MAX_PACKED_LAYERS = 3;

function adapterColumns({ weights }: GraphContext): [string, number][] {
  const all = weights.adapters?.ranks.reduce((sum, rank) => sum + rank, 0) ?? 0;
  const counts = Array.from({ length: MAX_PACKED_LAYERS }, (_, index) => index + 1);
  return counts.map((numLayers) => [columnsOf(numLayers), numLayers * all]);
}

function visionRunBytes(
  { graph }: GraphContext,
  { inputs, numImageTokens, largestSizes }: VisionEncoderDefinition,
  numEmbeddings: number,
): number {
  if (largestSizes !== undefined) return peakBytes(graph, largestSizes(numEmbeddings));
  const names = inputs.flatMap(({ shape }) => shape.filter((dimension) => typeof dimension === "string"));
  const numParts = Math.ceil(numEmbeddings / numImageTokens);
  return peakBytes(graph, new Map(names.map((name) => [name, numParts])));
}

/** Embedding tables are the only tensors that the decoder reads as stored, or under the names of their prepared forms. */
function decoderBytes(
  tensors: ReadonlyMap<string, StoredTensor>,
  weights: WeightCollector,
): Pick<WeightBytes, "embedding" | "decoder"> {
  const all = preparedBytes(tensors, weights, new Set(weights.storedTensors));
  const stored = [...weights.storedTensors].reduce((sum, { byteLength }) => sum + byteLength, 0);
  if (stored > 0) return { embedding: stored, decoder: all };
  const table = new WeightCollector(tensors);
  for (const name of embeddingTables) {
    const request = weights.requests.get(name);
    if (request !== undefined) table.requests.set(request.name, request);
  }
  const embedding = preparedBytes(tensors, table, new Set());
  return { embedding, decoder: all - embedding };
}

function expertBytes(
  tensors: ReadonlyMap<string, StoredTensor>,
  { requests }: WeightCollector,
  { experts }: DecoderDimensions,
): ExpertBytes | null {
  if (experts === undefined) return null;
  const ofExperts = new WeightCollector(tensors);
  for (const [name, request] of requests) {
    if (expertWeight.test(name)) ofExperts.requests.set(name, request);
  }
  const all = preparedBytes(tensors, ofExperts, new Set());
  return { all, perToken: (all * experts.numActive) / experts.numExperts };
}

/** See `mixture`. */
const expertWeight = /\.experts\.(?:\d+|all)\./;

/** Without tensors that are ready in the checkpoint and counted elsewhere. */
function preparedBytes(
  tensors: ReadonlyMap<string, StoredTensor>,
  { requests }: WeightCollector,
  counted: ReadonlySet<StoredTensor>,
): number {
  let bytes = 0;
  for (const planned of planWeights(tensors, [...requests.values()], 0).weights) {
    if (planned.kind === "made") bytes += madeBytes(planned);
    else if (!counted.has(planned.source)) bytes += planned.source.byteLength;
  }
  return bytes;
}

function bytesOfAdapters(adapters: readonly NamedAdapter[], { adapterRequests }: WeightCollector): number {
  return [...adapterRequests.values()].reduce((sum, request) => {
    const { down, up } = imagineMatrices(adapters, request)!;
    return sum + down.byteLength + up.byteLength;
  }, 0);
}

function madeBytes({ weight, scales, zeroPoints }: Extract<PlannedWeight, { kind: "made" }>): number {
  return weight.byteLength + (scales?.byteLength ?? 0) + (zeroPoints?.byteLength ?? 0);
}
