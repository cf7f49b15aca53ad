/** Maps the `promptDtype` setting to the layers that have 8-bit weights of their own for prompts and large batches. */
import type { DeviceName, DtypeName, PromptDtypeName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import type { SpeculativeConfig } from "../contract/speculative-config.ts";
import type { Checkpoint } from "../weights/checkpoint.ts";
import { isStoredInBlocks } from "../weights/stored-tensor.ts";
import type { KvLayout } from "./built-model.ts";
import { kvWidths } from "./decoder-shape.ts";
import type { KvPrecision } from "./graph-context.ts";
import { configOf } from "./kv-layout.ts";
import type { DefinedCheckpoint } from "./kv-layout.ts";
import { keepsIntegers, type WidenedLayers } from "./precision.ts";

export interface PromptSettings {
  readonly dtype: DtypeName;
  readonly device: DeviceName;
  readonly promptDtype?: PromptDtypeName;
  /** Tokens of the longest sequence; null or left out: the checkpoint's own limit. */
  readonly maxModelLen?: number | null;
  /** Drafts need the same weights for prompts and answers. */
  readonly speculativeConfig?: SpeculativeConfig | null;
}

/**
 * The share of the machine's memory that 8-bit weights for prompts take at most without being asked for. The 4-bit form
 * takes half as much, so that half of the memory stays for the rest.
 */
const SHARE_FOR_PROMPTS = 1 / 3;

/** The share that both forms and the longest sequence take at most. */
const SHARE_WITH_SEQUENCE = 0.8;

const BYTES_OF_BOTH_FORMS = 1.5;

export interface KvForm {
  readonly layout: KvLayout;
  readonly precision: KvPrecision;
}

type WeightsOfCheckpoint = DefinedCheckpoint & Pick<Checkpoint, "onnxFileNames" | "tensors">;

/**
 * The methods of quantised checkpoints say that activations stay floats, so their layers get 8-bit weights, whose
 * products round activations per token, only if they are asked for.
 *
 * @throws EngineError `invalid_configuration` if 8-bit weights are asked for where they cannot be.
 */
export function resolvePromptDtype(
  settings: PromptSettings,
  { layout, precision }: KvForm,
  checkpoint: WeightsOfCheckpoint,
  machineBytes: number,
): WidenedLayers {
  const { promptDtype = "auto" } = settings;
  if (promptDtype === "model") return "none";
  const keepsBlocks = checkpoint.onnxFileNames === null && keepsStoredBlocks(settings, checkpoint);
  const obstacle = obstacleTo(settings, layout, checkpoint, keepsBlocks) ?? obstacleOfExperts(checkpoint);
  if (promptDtype === "int8") {
    if (obstacle === null) return keepsBlocks ? "all" : "own";
    throw new EngineError(
      "invalid_configuration",
      `8-bit weights for prompts ${obstacle}. Choose the prompt dtype "model" or "auto".`,
      { setting: "promptDtype" },
    );
  }
  if (obstacle !== null || settings.dtype !== "int4" || settings.speculativeConfig != null) return "none";
  let numWeights = 0;
  for (const { shape } of checkpoint.tensors.values()) numWeights += shape.reduce((product, size) => product * size, 1);
  if (numWeights > machineBytes * SHARE_FOR_PROMPTS) return "none";
  // A start with "auto" must not fail for memory that only the second form takes.
  const bytesWithSequence = numWeights * BYTES_OF_BOTH_FORMS + longestSequenceBytes(settings, precision, checkpoint);
  return bytesWithSequence <= machineBytes * SHARE_WITH_SEQUENCE ? "own" : "none";
}

/** Keys and values of a sequence of full length. */
function longestSequenceBytes(
  { maxModelLen }: PromptSettings,
  precision: KvPrecision,
  checkpoint: WeightsOfCheckpoint,
): number {
  const { decoder, maxPositionEmbeddings } = configOf(checkpoint);
  const numbersPerToken = 2 * kvWidths(decoder).reduce((sum, width) => sum + width, 0);
  const bytesPerNumber = precision.kind === "int8" ? 1 : Float32Array.BYTES_PER_ELEMENT;
  return numbersPerToken * bytesPerNumber * (maxModelLen ?? maxPositionEmbeddings);
}

/** Why there can be no 8-bit weights for prompts, as the end of a sentence about them; null if there can. */
function obstacleTo(
  { dtype, device }: PromptSettings,
  layout: KvLayout,
  { onnxFileNames }: WeightsOfCheckpoint,
  keepsBlocks: boolean,
): string | null {
  if (onnxFileNames !== null) return "cannot be made for a ready-made ONNX export";
  if (device !== "cpu") return `are for the device cpu; the device is ${device}`;
  if (layout.kind !== "slots") return `are for KV slots; the KV layout is ${layout.kind}`;
  if (dtype === "int4" || keepsBlocks) return null;
  return (
    "stand beside weights of dtype int4, or beside integers that the checkpoint stores in groups and the dtype " +
    `keeps; there are none of them with dtype ${dtype}`
  );
}

/**
 * The weights of experts lie in a graph of each layer, which would lie in the graph of prompts or newest tokens. ONNX
 * Runtime 1.30 packs weights for its kernels only where they are used in the main graph or one below it
 * (`PrepackConstantInitializedTensors`), and a 4-bit matrix that is not packed is dequantised in every run.
 */
function obstacleOfExperts(checkpoint: WeightsOfCheckpoint): string | null {
  if (configOf(checkpoint).decoder.experts === undefined) return null;
  return "would slow a model with mixtures of experts down many times";
}

/** Whether layers are computed with integers of the checkpoint and with activations that are floats. */
function keepsStoredBlocks({ dtype }: PromptSettings, { config, tensors }: WeightsOfCheckpoint): boolean {
  if (!keepsIntegers({ dtype, config })) return false;
  for (const { quantised } of tensors.values()) {
    if (isStoredInBlocks(quantised)) return true;
  }
  return false;
}
