/** Combines a checkpoint's configuration with the settings and provides its graphs, before any weight is prepared. */
import type { DeviceName, DtypeName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { chooseGraph } from "../graph/control-flow-ops.ts";
import { withoutQuantisation } from "../weights/quantised/quantised-tensors.ts";
import type { KvElementType, KvLayout } from "./built-model.ts";
import { isWide, MIN_SEQUENCES_BESIDE_8_BITS, MIN_SEQUENCES_IN_8_BITS } from "./decoder-graph/run-kinds.ts";
import type { DecoderOutput } from "./decoder-output.ts";
import {
  branchContext,
  createGraphContext,
  kvElementTypeOf,
  type GraphContext,
  type KvPrecision,
  type Precision,
} from "./graph-context.ts";
import type { ConfiguredModel, DecoderDimensions, ModelDefinition } from "./model-definition.ts";
import { keepsIntegers, precisionOf, resolveDtype, type ResolvedDtype, type WidenedLayers } from "./precision.ts";
import { refuseVisionParts, resolveVisionParts } from "./vision-parts.ts";
import type { VisionParts, VisionPartSettings } from "./vision-parts.ts";
import type { WeightSource } from "./weight-source.ts";

export interface GraphOptions extends VisionPartSettings {
  /** What the decoder computes. Default: logits. */
  readonly output?: DecoderOutput;
  readonly dtype: DtypeName;
  readonly device: DeviceName;
  /** Default 0. */
  readonly deviceId?: number;
  /** Maximum number of tokens per sequence; null for the checkpoint's own limit. */
  readonly maxModelLen: number | null;
  /** Default: slots. */
  readonly kvLayout?: KvLayout;
  /** Layers that have 8-bit weights of their own for prompts. Default `none`. */
  readonly widenedLayers?: WidenedLayers;
  /** Default: the activations' type. */
  readonly kvPrecision?: KvPrecision;
  /** Whether ONNX Runtime's operator computes experts on the CPU too, in float32. Default false: it does on cuda only. */
  readonly fusesExperts?: boolean;
  readonly definition: ModelDefinition;
}

export interface ModelGraphs {
  readonly definition: ModelDefinition;
  readonly model: ConfiguredModel;
  readonly dtype: ResolvedDtype;
  readonly precision: Precision;
  /** Null for a model that does not accept images. */
  readonly visionParts: VisionParts | null;
  readonly maxModelLen: number;
  readonly kvLayout: KvLayout;
  readonly kvElementType: KvElementType;
  buildDecoder(this: void, weights: WeightSource): GraphContext;
  /** Null for a model that does not accept images. */
  buildVisionEncoder(this: void, weights: WeightSource): GraphContext | null;
}

const slots: KvLayout = { kind: "slots" };

/**
 * @param config The content of config.json.
 * @throws EngineError `unsupported_model` and `invalid_checkpoint` (both name the field), `invalid_configuration` for a
 *   dtype or KV layout that the device lacks or a length above the checkpoint's. Building throws the errors of tensors.
 */
export function configureGraphs(config: unknown, options: GraphOptions): ModelGraphs {
  const { definition, device, maxModelLen, kvLayout = slots, kvPrecision = { kind: "activations" } } = options;
  checkKvLayout(kvLayout, device);
  const dtype = resolveDtype({ dtype: options.dtype, device, config });
  const isKept = keepsIntegers({ dtype: options.dtype, config });
  const precision: Precision = {
    ...precisionOf(dtype, device, options.widenedLayers),
    ...(isKept && { keepsIntegers: true }),
    ...(options.fusesExperts === true && { experts: { kind: "plain", elementType: "float32" } }),
  };
  const configured = definition.configure(withoutQuantisation(config));
  checkDevice(definition.architecture, configured.decoder, { device, kvLayout, dtype, precision });
  const model = withStatesOf(configured, device, precision);
  const visionParts = visionPartsOf(model, options, dtype, isKept);
  const length = checkedLength(maxModelLen, model.maxPositionEmbeddings);
  return {
    definition,
    model,
    dtype,
    precision,
    visionParts,
    maxModelLen: length,
    kvLayout,
    kvElementType: kvElementTypeOf({ precision, kvPrecision, device }),
    buildDecoder(weights) {
      const adapterTokens =
        weights.adapters === undefined ? null : { ids: new Map(), columns: null, shared: new Map() };
      const context = createGraphContext("decoder", {
        weights,
        precision,
        device,
        kvLayout,
        kvPrecision,
        adapterTokens,
        ...(options.output !== undefined && { output: options.output }),
      });
      const { prompts } = precision;
      if (prompts === undefined) model.buildDecoder(context, length);
      else {
        chooseGraph(context.graph, "runs", {
          condition: isWide(context, minSequences(context, prompts)),
          chosen: () => model.buildDecoder(branchContext(context, { precision: { ...precision, ...prompts } }), length),
          other: () => model.buildDecoder(branchContext(context, { runKind: "newest" }), length),
        });
      }
      return context;
    },
    buildVisionEncoder(weights) {
      if (model.visionEncoder === null || visionParts === null) return null;
      const { vision, projector } = visionParts;
      const context = createGraphContext("vision_encoder", {
        weights,
        precision: vision.precision,
        projectorPrecision: projector.precision,
        device: vision.device,
        kvLayout,
      });
      model.visionEncoder.build(context);
      return context;
    },
  };
}

/** Number of newest tokens from which the weights of prompts are faster than those of other tokens. */
function minSequences({ weights }: GraphContext, { linear }: NonNullable<Precision["prompts"]>): number {
  const hasFourBits = linear !== undefined || weights.fewestStoredBits() === 4;
  return hasFourBits ? MIN_SEQUENCES_IN_8_BITS : MIN_SEQUENCES_BESIDE_8_BITS;
}

interface DeviceForm extends Required<Pick<GraphOptions, "device" | "kvLayout">> {
  readonly dtype: ResolvedDtype;
  readonly precision: Precision;
}

/**
 * Recurrent states are replaced in place over slots: a run that is computed again, as a captured graph is, would advance
 * them twice.
 */
function checkDevice(architecture: string, { recurrent, experts }: DecoderDimensions, form: DeviceForm): void {
  const { device, kvLayout } = form;
  if (device === "cpu") return;
  if (experts !== undefined) checkExperts(architecture, experts, form);
  if (recurrent === undefined) return;
  if (device !== "cuda") {
    throw new EngineError(
      "invalid_configuration",
      `${architecture} has layers with a recurrent state, which only the devices cpu and cuda compute; the device is ` +
        `${device}.`,
      { setting: "device" },
    );
  }
  if (kvLayout.kind === "paged") return;
  throw new EngineError(
    "invalid_configuration",
    `${architecture} has layers with a recurrent state, which cuda computes over a paged KV cache only; the KV layout ` +
      'is slots. Choose the KV layout "paged".',
    { setting: "kvLayout" },
  );
}

/** Products of as many rows as a run routes to an expert would wait for the host. The operator for experts does not. */
function checkExperts(
  architecture: string,
  { hasFactors }: NonNullable<DecoderDimensions["experts"]>,
  { device, dtype, precision }: DeviceForm,
): void {
  if (device === "cuda" && hasFactors !== true) {
    if (precision.experts !== undefined) return;
    throw new EngineError(
      "invalid_configuration",
      `${architecture} has a mixture of experts, which cuda computes in bfloat16 and float16; the dtype is ${dtype}.`,
      { setting: "dtype" },
    );
  }
  const what =
    hasFactors === true
      ? "a mixture of experts with GELU and factors, which only the device cpu computes"
      : "a mixture of experts, which only the devices cpu and cuda compute";
  throw new EngineError("invalid_configuration", `${architecture} has ${what}; the device is ${device}.`, {
    setting: "device",
  });
}

/** The model with the form of its states on the device. */
function withStatesOf(
  model: ConfiguredModel,
  device: DeviceName,
  { activations }: Pick<Precision, "activations">,
): ConfiguredModel {
  const { recurrent } = model.decoder;
  if (recurrent === undefined || device !== "cuda") return model;
  return {
    ...model,
    decoder: { ...model.decoder, recurrent: { ...recurrent, inputType: activations, isTransposed: true } },
  };
}

function visionPartsOf(
  { visionEncoder }: ConfiguredModel,
  options: GraphOptions,
  dtype: ResolvedDtype,
  isKept: boolean,
): VisionParts | null {
  if (visionEncoder === null) {
    refuseVisionParts(options, "This model has no vision part.");
    return null;
  }
  const { device, deviceId = 0 } = options;
  return resolveVisionParts(
    options,
    { dtype, device, deviceId, keepsIntegers: isKept },
    visionEncoder.hasProjector ?? false,
  );
}

function checkedLength(maxModelLen: number | null, maxPositionEmbeddings: number): number {
  if (maxModelLen === null) return maxPositionEmbeddings;
  if (maxModelLen > maxPositionEmbeddings) {
    throw new EngineError(
      "invalid_configuration",
      `The model length is set to ${maxModelLen} tokens; the checkpoint's limit is ${maxPositionEmbeddings}.`,
      { setting: "maxModelLen" },
    );
  }
  return maxModelLen;
}

/** The smallest block size that the CUDA provider's PagedAttention supports; larger powers of two work too. */
const SMALLEST_CUDA_BLOCK = 16;

function checkKvLayout(kvLayout: KvLayout, device: DeviceName): void {
  if (kvLayout.kind === "slots") return;
  const { blockSize } = kvLayout;
  if (device === "webgpu") {
    throw new EngineError("invalid_configuration", "A paged KV cache is for cuda and cpu. Use slots on webgpu.", {
      setting: "kvLayout",
    });
  }
  if (!Number.isSafeInteger(blockSize) || blockSize < 1) {
    throw new EngineError(
      "invalid_configuration",
      `KV blocks have at least one token; the block size is ${blockSize}.`,
      { setting: "blockSize" },
    );
  }
  if (device === "cuda" && (blockSize < SMALLEST_CUDA_BLOCK || !Number.isInteger(Math.log2(blockSize)))) {
    throw new EngineError(
      "invalid_configuration",
      `On cuda, the size of KV blocks is a power of two from ${SMALLEST_CUDA_BLOCK} on; it is ${blockSize}.`,
      { setting: "blockSize" },
    );
  }
}
