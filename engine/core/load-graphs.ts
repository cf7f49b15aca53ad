/** Loads a model's graphs, whichever form they have, and the KV cache that the decoder writes. */
import type { EngineConfig } from "../contract/config.ts";
import { defaultEngineLimits } from "../contract/default-limits.ts";
import type { Decoder } from "../decoder/decoder.ts";
import { ExportedDecoder } from "../decoder/exported-decoder.ts";
import { InPlaceDecoder } from "../decoder/in-place-decoder.ts";
import { createFeaturePool, PagedDecoder, runOnScratchBlock } from "../decoder/paged-decoder.ts";
import { requireSoundPrompts } from "../decoder/require-sound-prompts.ts";
import { runOnShortSlot } from "../decoder/slot-profile.ts";
import { BlockKvManager } from "../kv/block-kv-manager.ts";
import { BlockSnapshots } from "../kv/block-snapshots.ts";
import type { KvManager } from "../kv/kv-manager.ts";
import { KvSlots } from "../kv/kv-slots.ts";
import {
  gpuKvRoomBytes,
  kvRoomBytes,
  planEncoderCache,
  planKvCache,
  requireRoomForKv,
  requireRoomForWeights,
} from "../kv/memory-plan.ts";
import { planBlocks } from "../kv/plan-blocks.ts";
import { planSlotBlocksOf } from "../kv/plan-slot-blocks.ts";
import { SlotBlocks } from "../kv/slot-blocks.ts";
import { SlotKvManager } from "../kv/slot-kv-manager.ts";
import { firstSnapshotRow, SNAPSHOTS_PER_SEQUENCE } from "../kv/state-rows.ts";
import { StateSnapshots } from "../kv/state-snapshots.ts";
import type { DecoderGraph } from "../models/built-model.ts";
import { requireCudnn } from "../runtime/execution-provider.ts";
import { memoryShareBytes } from "../runtime/machine-memory.ts";
import { Session } from "../runtime/session.ts";
import type { WorkerOptions } from "../thread/messages.ts";
import { BuiltVisionEncoder } from "../vision/built-vision-encoder.ts";
import { ExportedVisionEncoder } from "../vision/exported-vision-encoder.ts";
import { GraphPool } from "../vision/graph-pool.ts";
import type { VisionEncoder } from "../vision/vision-encoder.ts";
import { freeBytesOf, measuredDeviceOf, weightsOn } from "./measured-device.ts";
import type { MeasuredDevice } from "./measured-device.ts";
import { encodeLargestImage, runLargestStep } from "./profile-run.ts";
import {
  decoderSessionOptions,
  pagedSessionOptions,
  slotSessionOptions,
  visionDeviceOf,
  visionEncoderSessionOptions,
} from "./session-options.ts";
import { warnOfLargeSteps } from "./step-warning.ts";

type GraphOptions = Pick<
  WorkerOptions,
  "config" | "model" | "copy" | "maxModelLen" | "maxEmbeddingsPerImage" | "largestImage"
>;

export interface LoadedDecoder {
  /** The caller disposes of it. */
  readonly decoder: Decoder;
  readonly kvManager: KvManager;
}

export interface LoadedGraphs extends LoadedDecoder {
  /** Null for a text model. The caller disposes of it. */
  readonly visionEncoder: VisionEncoder | null;
}

/**
 * The vision encoder is loaded first: on a GPU, the KV cache takes what both parts leave.
 *
 * @param device Default: the GPU that the settings want; null without one.
 * @throws EngineError `runtime_failed` if a graph does not load, `out_of_memory` if a device has no memory for the largest
 * image or step, `invalid_configuration` if weights or KV cache do not fit, the device lacks what images need, or it
 * computes wrong numbers with these limits.
 */
export function loadGraphs(
  options: GraphOptions,
  device: MeasuredDevice | null = measuredDeviceOf(options),
): LoadedGraphs {
  const { config, model } = options;
  if (model.visionEncoder !== null && visionDeviceOf(config, model) === "cuda") requireCudnn();
  if (device !== null) requireRoomForWeights(weightsOn(device, options), freeBytesOf(device));
  using loaded = new DisposableStack();
  const visionEncoder = loaded.use(loadVisionEncoder(options));
  const { decoder, kvManager } = loadDecoder(options, device, visionEncoder);
  loaded.move();
  return { decoder, kvManager, visionEncoder };
}

/**
 * @param device That whose memory the KV cache takes; null for the host's.
 * @param visionEncoder Loaded on the same device; null without one.
 * @throws EngineError As `loadGraphs` does.
 */
export function loadDecoder(
  options: GraphOptions,
  device: MeasuredDevice | null = null,
  visionEncoder: VisionEncoder | null = null,
): LoadedDecoder {
  const { config, model, maxModelLen } = options;
  const { decoder: graph } = model;
  if (graph.form === "in-place" && graph.kvLayout.kind === "paged") {
    return loadPagedDecoder(options, { graph, blockSize: graph.kvLayout.blockSize, device, visionEncoder });
  }
  if (graph.form === "in-place" && config.device === "webgpu") {
    requireSoundPrompts(config, Math.min(config.maxNumBatchedTokens, maxModelLen));
  }
  const { maxNumSequences } = config;
  const plan = graph.form === "export" ? null : planSlotBlocksOf(config, graph, maxModelLen);
  // With fewer slots than sequences, the cache says what would fit.
  const slotBlocks = plan?.numSlots === maxNumSequences ? plan : null;
  const kvSlots = new KvSlots(maxNumSequences, maxModelLen);
  const snapshots = graph.recurrent === undefined ? null : new StateSnapshots(maxNumSequences);
  using loaded = new DisposableStack();
  let decoder: Decoder;
  if (graph.form === "export") {
    decoder = new ExportedDecoder(graph, decoderSessionOptions(config, model), kvSlots, snapshots);
  } else {
    const pool = loaded.use(createGraphPool(options, graph));
    const session = loaded.use(Session.load(graph.path, slotSessionOptions(config, model, options.copy)));
    if (device?.name === config.device) requireRoomForSlots(options, { graph, session, device, visionEncoder });
    decoder = new InPlaceDecoder(graph, session, kvSlots, snapshots, slotBlocks, pool);
  }
  loaded.move();
  const { canTransfer } = decoder;
  const blocks = slotBlocks === null ? null : new SlotBlocks(kvSlots, slotBlocks, snapshots);
  return { decoder, kvManager: new SlotKvManager(kvSlots, { ...config, canTransfer, snapshots }, blocks) };
}

/** Null for a text model. */
function loadVisionEncoder({ config, model, copy }: GraphOptions): VisionEncoder | null {
  const { visionEncoder, decoder } = model;
  if (visionEncoder === null) return null;
  const options = visionEncoderSessionOptions(config, model, copy);
  return visionEncoder.form === "export"
    ? new ExportedVisionEncoder(visionEncoder, decoder.imageWidth, options)
    : new BuiltVisionEncoder(visionEncoder, decoder.imageWidth, options);
}

/** Slots have their full length from the start, so all of them must fit. */
function requireRoomForSlots(
  { config, maxModelLen: maxLen, largestImage = null }: GraphOptions,
  {
    graph,
    session,
    device,
    visionEncoder,
  }: Omit<PagedParts, "blockSize"> & { session: Session; device: MeasuredDevice },
): void {
  const { maxNumSequences: numSlots, maxNumBatchedTokens: maxNumTokens } = config;
  if (visionEncoder !== null && largestImage !== null) encodeLargestImage(visionEncoder, largestImage, null);
  runLargestStep(config, () => runOnShortSlot(graph, session, { maxNumTokens, maxNumSequences: numSlots, maxLen }));
  const shape = { numSlots, maxLen };
  requireRoomForKv(planKvCache(graph, shape), shape, roomOnDevice(device, config), "GPU");
}

interface PagedParts {
  readonly graph: DecoderGraph;
  readonly blockSize: number;
  readonly device: MeasuredDevice | null;
  readonly visionEncoder: VisionEncoder | null;
}

function loadPagedDecoder(
  options: GraphOptions,
  { graph, blockSize, device, visionEncoder }: PagedParts,
): LoadedDecoder {
  const { config, model, maxModelLen, largestImage = null } = options;
  const { maxNumSequences, maxNumBatchedTokens } = config;
  warnOfLargeSteps(config);
  using loaded = new DisposableStack();
  const session = loaded.use(Session.load(graph.path, pagedSessionOptions(config, model, options.copy)));
  const limits = {
    maxNumTokens: maxNumBatchedTokens,
    maxNumSequences,
    maxLen: maxModelLen,
    isEager: config.enforceEager ?? false,
  };
  // Before the blocks, which take what is left.
  const featurePool = loaded.use(createFeaturePool(graph, session, limits, options.maxEmbeddingsPerImage));
  const takesAllRoom = device?.name === config.device;
  if (takesAllRoom) {
    if (visionEncoder !== null && largestImage !== null) encodeLargestImage(visionEncoder, largestImage, featurePool);
    runLargestStep(config, () => runOnScratchBlock(graph, session, blockSize, limits, featurePool));
  }
  const capacity = planBlocks(graph, {
    blockSize,
    maxNumSequences,
    maxLen: maxModelLen,
    roomBytes: takesAllRoom ? roomOnDevice(device, config) : roomOnHost(graph, config),
    takesAllRoom,
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
function createGraphPool({ config, maxModelLen, maxEmbeddingsPerImage }: GraphOptions, graph: DecoderGraph) {
  const { acceptsImages, imageWidth: width } = graph;
  if (config.device !== "webgpu" || !acceptsImages) return null;
  const { maxNumEmbeddings: numRows } = planEncoderCache(width, maxEmbeddingsPerImage);
  const maxRunRows = Math.min(config.maxNumBatchedTokens, maxModelLen);
  return new GraphPool(config.device, { deviceId: config.deviceId }, { width, numRows, maxRunRows });
}

function roomOnDevice(device: MeasuredDevice, config: EngineConfig): number {
  const { gpuMemoryUtilization: utilization = defaultEngineLimits.gpuMemoryUtilization } = config;
  return gpuKvRoomBytes(device.memoryBytes(), { utilization, maxKvBytes: config.kvCacheMemoryBytes });
}

function roomOnHost(graph: DecoderGraph, config: EngineConfig): number {
  const { kvCacheMemoryBytes: maxKvBytes } = config;
  const machineBytes = memoryShareBytes(config, graph);
  return kvRoomBytes({ weightBytes: graph.weightBytes, machineBytes, maxKvBytes });
}
