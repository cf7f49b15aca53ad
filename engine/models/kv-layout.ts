/** Chooses how the KV cache of a model is divided. */
import type { DeviceName, DtypeName, KvCacheDtypeName, KvLayoutName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import type { Checkpoint } from "../weights/checkpoint.ts";
import { withoutQuantisation } from "../weights/quantised/quantised-tensors.ts";
import type { KvLayout } from "./built-model.ts";
import type { KvPrecision } from "./graph-context.ts";
import type { ConfiguredModel, ModelDefinition } from "./model-definition.ts";

export interface KvLayoutSettings {
  readonly device: DeviceName;
  readonly kvLayout?: KvLayoutName;
  readonly kvCacheDtype?: KvCacheDtypeName;
  readonly blockSize?: number | null;
  readonly numBlocks?: number | null;
}

/** A checkpoint with the definition of its model. */
export interface DefinedCheckpoint extends Pick<Checkpoint, "config"> {
  readonly definition: ModelDefinition;
}

/** Small blocks share more of a prefix, and the CPU's reference attention computes all sizes alike. */
const CPU_BLOCK_SIZE = 16;

/**
 * @throws EngineError `invalid_configuration` for a layout that the device or a ready-made export lacks, for a block size
 *   that the device's kernels do not compute, and for blocks of slots; `unsupported_model` and `invalid_checkpoint` as `configure` does.
 */
export function resolveKvLayout(
  { device, kvLayout = "auto", kvCacheDtype, blockSize, numBlocks }: KvLayoutSettings,
  checkpoint: DefinedCheckpoint & Pick<Checkpoint, "onnxFileNames">,
): KvLayout {
  const isExport = checkpoint.onnxFileNames !== null;
  const isPaged =
    kvLayout === "auto"
      ? device === "cuda" && !isExport && !keepsImagesWhole(checkpoint) && hasPagedHeads(checkpoint)
      : kvLayout === "paged";
  // With "auto", the same settings serve devices of both layouts.
  if (kvLayout === "slots" && (blockSize != null || numBlocks != null)) {
    throw new EngineError(
      "invalid_configuration",
      "A block size or a number of blocks is for a paged KV cache, and the KV layout is slots. Leave " +
        `${blockSize == null ? `the number of blocks (${numBlocks})` : `the block size (${blockSize})`} out, or choose ` +
        'the KV layout "paged".',
      { setting: "blockSize" },
    );
  }
  if (!isPaged) return { kind: "slots" };
  if (isExport) throw unavailable("A ready-made ONNX export computes its own attention and has no paged KV cache.");
  if (device === "webgpu") throw unavailable("The webgpu device has no paged KV cache.");
  if (device === "cuda" && !hasPagedHeads(checkpoint)) {
    const { headDim } = configOf(checkpoint).decoder;
    throw unavailable(
      `The model has heads of ${headDim} numbers; paged attention on cuda computes at most ${MAX_PAGED_HEAD}.`,
    );
  }
  const smallest = device === "cpu" ? 1 : fastBlockSize(configOf(checkpoint).decoder.headDim, kvCacheDtype);
  const size = blockSize ?? (device === "cpu" ? CPU_BLOCK_SIZE : smallest);
  if (size % smallest === 0) return { kind: "paged", blockSize: size };
  throw new EngineError(
    "invalid_configuration",
    `A block of ${size} tokens is not a multiple of ${smallest}, which the attention kernels of ${device} need for this model.`,
    { setting: "blockSize" },
  );
}

export interface KvPrecisionSettings {
  readonly device: DeviceName;
  readonly dtype: DtypeName;
  readonly kvCacheDtype?: KvCacheDtypeName;
}

/**
 * Whether keys and values are stored as computed, as 8-bit integers, whose steps are measured later, or as 8-bit floats.
 *
 * @throws EngineError `invalid_configuration` for 8 bits where device, layout or an export lacks them.
 */
export function resolveKvPrecision(
  { device, dtype, kvCacheDtype = "auto" }: KvPrecisionSettings,
  layout: KvLayout,
  checkpoint: Pick<Checkpoint, "onnxFileNames"> & Partial<DefinedCheckpoint>,
): KvPrecision {
  const isExport = checkpoint.onnxFileNames !== null;
  const isPossible = device === "cpu" && layout.kind === "slots" && !isExport;
  const isPaged = layout.kind === "paged" && device !== "webgpu" && !isExport;
  if (kvCacheDtype === "auto") {
    const isWanted = quantisedDtypes.has(dtype) && !keepsImagesWhole(checkpoint);
    return isPossible && isWanted ? { kind: "int8", steps: null } : { kind: "activations" };
  }
  if (kvCacheDtype === "model") return { kind: "activations" };
  if (kvCacheDtype === "fp8" && isPaged) return { kind: "fp8" };
  if (kvCacheDtype === "int8" && isPossible) return { kind: "int8", steps: null };
  const place = layout.kind === "paged" ? 'the KV layout "paged"' : 'the KV layout "slots"';
  const where = isExport ? "a ready-made ONNX export" : `${place} on ${device}`;
  const home = kvCacheDtype === "fp8" ? "for a paged KV cache on cuda" : "for KV slots on the cpu";
  throw new EngineError(
    "invalid_configuration",
    `The KV cache of ${where} has no ${kvCacheDtype}, which is ${home}. Choose the KV cache dtype "model" or "auto".`,
    { setting: "kvCacheDtype" },
  );
}

const quantisedDtypes: ReadonlySet<DtypeName> = new Set(["int8", "int4"]);

/** Of ONNX Runtime 1.30's decoding kernel for 8-bit caches. Prompts over them take blocks of any size. */
const FP8_BLOCK_SIZE = 128;

/** FlashAttention's paged kernel of ONNX Runtime 1.30 takes multiples of this many tokens. */
function fastBlockSize(headDim: number, kvCacheDtype: KvCacheDtypeName | undefined): number {
  if (kvCacheDtype === "fp8") return FP8_BLOCK_SIZE;
  if (headDim <= 64) return 256;
  return headDim <= 128 ? 128 : 64;
}

/** FlashAttention has no kernels for larger heads. */
const MAX_PAGED_HEAD = 256;

function hasPagedHeads(checkpoint: DefinedCheckpoint): boolean {
  return configOf(checkpoint).decoder.headDim <= MAX_PAGED_HEAD;
}

function unavailable(reason: string): EngineError {
  return new EngineError("invalid_configuration", `${reason} Choose the KV layout "slots" or "auto".`, {
    setting: "kvLayout",
  });
}

/** Causal kernels cannot compute these models' attention to images; see `attendToWholeImages`. */
function keepsImagesWhole(checkpoint: Pick<Checkpoint, "onnxFileNames"> & Partial<DefinedCheckpoint>): boolean {
  if (checkpoint.onnxFileNames !== null) return false;
  const { config, definition } = checkpoint;
  return definition !== undefined && configOf({ config, definition }).decoder.keepsImagesWhole === true;
}

export function configOf({ config, definition }: DefinedCheckpoint): ConfiguredModel {
  return definition.configure(withoutQuantisation(config));
}
