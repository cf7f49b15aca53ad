/** Loads a model's graphs, whichever form they have, and the KV cache that the decoder writes. */
import type { EngineConfig } from "../contract/config.ts";
import { defaultEngineLimits } from "../contract/default-limits.ts";
import { invariant } from "../contract/errors.ts";
import type { Decoder } from "../decoder/decoder.ts";
import { ExportedDecoder } from "../decoder/exported-decoder.ts";
import { InPlaceDecoder } from "../decoder/in-place-decoder.ts";
import { createFeaturePool, PagedDecoder, runOnScratchBlock } from "../decoder/paged-decoder.ts";
import { requireSoundPrompts } from "../decoder/require-sound-prompts.ts";
import { BlockKvManager } from "../kv/block-kv-manager.ts";
import { BlockSnapshots } from "../kv/block-snapshots.ts";
import type { KvManager } from "../kv/kv-manager.ts";
import { KvSlots } from "../kv/kv-slots.ts";
import { kvRoomBytes, planEncoderCache, requireRoomForWeights } from "../kv/memory-plan.ts";
import { planBlocks } from "../kv/plan-blocks.ts";
import { planSlotBlocksOf } from "../kv/plan-slot-blocks.ts";
import { SlotBlocks } from "../kv/slot-blocks.ts";
import { SlotKvManager } from "../kv/slot-kv-manager.ts";
import { firstSnapshotRow, SNAPSHOTS_PER_SEQUENCE } from "../kv/state-rows.ts";
import { StateSnapshots } from "../kv/state-snapshots.ts";
import type { BuiltModel, DecoderGraph } from "../models/built-model.ts";
import { cudaMemoryBytes } from "../runtime/cuda-memory.ts";
import { requireCudnn } from "../runtime/execution-provider.ts";
import { machineMemoryBytes } from "../runtime/machine-memory.ts";
import { Session } from "../runtime/session.ts";
import type { WorkerOptions } from "../thread/messages.ts";
import { BuiltVisionEncoder } from "../vision/built-vision-encoder.ts";
import { ExportedVisionEncoder } from "../vision/exported-vision-encoder.ts";
import { GraphPool } from "../vision/graph-pool.ts";
import type { VisionEncoder } from "../vision/vision-encoder.ts";
import { decoderSessionOptions, pagedSessionOptions, visionEncoderSessionOptions } from "./session-options.ts";

type DecoderOptions = Pick<WorkerOptions, "config" | "model" | "maxModelLen" | "maxEmbeddingsPerImage">;

export interface LoadedDecoder {
  /** The caller disposes of it. */
  readonly decoder: Decoder;
  readonly kvManager: KvManager;
}

/**
 * Throws EngineError `runtime_failed` if a graph does not load, `invalid_configuration` if the KV cache does not fit or
 * the device computes wrong numbers with these limits.
 */
export function loadDecoder(options: DecoderOptions): LoadedDecoder {
  const { config, model, maxModelLen } = options;
  const { decoder: graph } = model;
  if (graph.form === "in-place" && graph.kvLayout.kind === "paged") {
    return loadPagedDecoder(options, graph, graph.kvLayout.blockSize);
  }
  if (graph.form === "in-place" && config.device === "webgpu") {
    requireSoundPrompts(config, Math.min(config.maxNumBatchedTokens, maxModelLen));
  }
  const sessionOptions = decoderSessionOptions(config, model);
  const { maxNumSequences } = config;
  const plan = graph.form === "export" ? null : planSlotBlocksOf(config, graph, maxModelLen);
  // With fewer slots than sequences, the cache says what would fit.
  const slotBlocks = plan?.numSlots === maxNumSequences ? plan : null;
  const kvSlots = new KvSlots(maxNumSequences, maxModelLen);
  const snapshots = graph.recurrent === undefined ? null : new StateSnapshots(maxNumSequences);
  using loaded = new DisposableStack();
  const pool = graph.form === "export" ? null : loaded.use(createGraphPool(options, graph));
  const decoder =
    graph.form === "export"
      ? new ExportedDecoder(graph, sessionOptions, kvSlots, snapshots)
      : new InPlaceDecoder(graph, sessionOptions, kvSlots, snapshots, slotBlocks, pool);
  loaded.move();
  const { canTransfer } = decoder;
  const blocks = slotBlocks === null ? null : new SlotBlocks(kvSlots, slotBlocks, snapshots);
  return { decoder, kvManager: new SlotKvManager(kvSlots, { ...config, canTransfer, snapshots }, blocks) };
}

/**
 * Null for a text model.
 *
 * @throws EngineError `runtime_failed` if the graph does not load, `invalid_configuration` if the device lacks what
 * images need.
 */
export function loadVisionEncoder(config: EngineConfig, model: BuiltModel): VisionEncoder | null {
  const { visionEncoder, decoder } = model;
  if (visionEncoder === null) return null;
  const options = visionEncoderSessionOptions(config, model);
  if (options.device === "cuda") requireCudnn();
  return visionEncoder.form === "export"
    ? new ExportedVisionEncoder(visionEncoder, decoder.imageWidth, options)
    : new BuiltVisionEncoder(visionEncoder, decoder.imageWidth, options);
}

function loadPagedDecoder(options: DecoderOptions, graph: DecoderGraph, blockSize: number): LoadedDecoder {
  const { config, model, maxModelLen } = options;
  const { maxNumSequences, maxNumBatchedTokens } = config;
  if (config.device === "cuda") requireRoomForWeights(graph, freeCudaBytes(config.deviceId));
  using loaded = new DisposableStack();
  const session = loaded.use(Session.load(graph.path, pagedSessionOptions(config, model)));
  const limits = {
    maxNumTokens: maxNumBatchedTokens,
    maxNumSequences,
    maxLen: maxModelLen,
    isEager: config.enforceEager ?? false,
  };
  // Before the blocks, which take what is left.
  const featurePool = loaded.use(createFeaturePool(graph, session, limits, options.maxEmbeddingsPerImage));
  const runLargest = (): void => runOnScratchBlock(graph, session, blockSize, limits, featurePool);
  const capacity = planBlocks(graph, {
    blockSize,
    maxNumSequences,
    maxLen: maxModelLen,
    roomBytes: roomForBlocks(session, graph, config, runLargest),
    takesAllRoom: session.deviceMemory !== null,
    numBlocks: config.numBlocks,
  });
  const decoder = new PagedDecoder(graph, session, capacity, limits, featurePool);
  loaded.move();
  using warming = new DisposableStack();
  warming.use(decoder);
  if (config.device === "cuda" && !limits.isEager) decoder.warmUp();
  warming.move();
  const numSnapshots = SNAPSHOTS_PER_SEQUENCE * maxNumSequences;
  const snapshots =
    graph.recurrent === undefined ? null : new BlockSnapshots(firstSnapshotRow(maxNumSequences), numSnapshots);
  return { decoder, kvManager: new BlockKvManager({ ...config, capacity, snapshots }) };
}

/** Null where the host has the features: for a text model, and on devices of which the decoder's slots take rows of it. */
function createGraphPool({ config, maxModelLen, maxEmbeddingsPerImage }: DecoderOptions, graph: DecoderGraph) {
  const { acceptsImages, imageWidth: width } = graph;
  if (config.device !== "webgpu" || !acceptsImages) return null;
  const { maxNumEmbeddings: numRows } = planEncoderCache(width, maxEmbeddingsPerImage);
  const maxRunRows = Math.min(config.maxNumBatchedTokens, maxModelLen);
  return new GraphPool(config.device, { deviceId: config.deviceId }, { width, numRows, maxRunRows });
}

/** Infinity if the device cannot be asked. Loading the session then says why. */
function freeCudaBytes(deviceId: number): number {
  try {
    return cudaMemoryBytes(deviceId).freeBytes;
  } catch {
    return Infinity;
  }
}

/**
 * On a GPU, the share of its memory that the settings allow, less everything that is in use after the largest run. The
 * run makes ONNX Runtime take the memory that later runs reuse.
 */
function roomForBlocks(session: Session, graph: DecoderGraph, config: EngineConfig, runLargest: () => void): number {
  const { kvCacheMemoryBytes: maxKvBytes } = config;
  if (session.device === "cpu") {
    return kvRoomBytes({ weightBytes: graph.weightBytes, machineBytes: machineMemoryBytes(), maxKvBytes });
  }
  invariant(session.device === "cuda", `no paged KV cache on ${session.device}`);
  runLargest();
  const { totalBytes, freeBytes } = cudaMemoryBytes(config.deviceId);
  const share = config.gpuMemoryUtilization ?? defaultEngineLimits.gpuMemoryUtilization;
  return Math.min(totalBytes * share - (totalBytes - freeBytes), maxKvBytes ?? Infinity);
}
