/** Precision and device of the vision part: of its tower, and of the projector after it. */
import { deviceNames, type DeviceName, type DtypeName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { shown } from "../excerpt.ts";
import type { Precision } from "./graph-context.ts";
import { precisionOf, type ResolvedDtype } from "./precision.ts";

/** Null or left out: as the decoder, or the device's own. */
export interface VisionPartSettings {
  readonly visionDtype?: DtypeName | null;
  readonly visionDevice?: DeviceName | null;
  readonly projectorDtype?: DtypeName | null;
  readonly projectorDevice?: DeviceName | null;
  /**
   * text-generation-webui's names: `vision_bits`, `vision_device`, `projector_bits`, `projector_device`. The settings
   * override them.
   */
  readonly pipelineParams?: Readonly<Record<string, unknown>>;
}

export interface VisionPart {
  readonly dtype: ResolvedDtype;
  readonly device: DeviceName;
}

export interface VisionParts {
  readonly vision: VisionPart & { readonly precision: Precision };
  readonly projector: VisionPart & { readonly precision: Precision };
  /** Whether both are computed like the decoder. */
  readonly areDefault: boolean;
}

interface Decoder extends VisionPart {
  readonly deviceId: number;
  /** Whether it computes with integers that the checkpoint stores. Default false. */
  readonly keepsIntegers?: boolean;
}

/**
 * @param hasProjector Whether the graph tells its projector from its tower.
 * @throws EngineError `invalid_configuration` for a dtype that the device lacks, for a projector on another device than
 *   the tower (both are one graph), and for a projector that the model does not have.
 */
export function resolveVisionParts(settings: VisionPartSettings, decoder: Decoder, hasProjector: boolean): VisionParts {
  const wanted = {
    visionDtype: settings.visionDtype ?? dtypeParam(settings, "vision_bits", decoder),
    visionDevice: settings.visionDevice ?? deviceParam(settings, "vision_device", decoder),
    projectorDtype: settings.projectorDtype ?? dtypeParam(settings, "projector_bits", decoder),
    projectorDevice: settings.projectorDevice ?? deviceParam(settings, "projector_device", decoder),
  };
  const device = wanted.visionDevice ?? decoder.device;
  const projectorDevice = wanted.projectorDevice ?? device;
  if (projectorDevice !== device) {
    throw new EngineError(
      "invalid_configuration",
      `The projector cannot be on ${projectorDevice} with the vision tower on ${device}: they are one graph. Set both to the same device.`,
      { setting: "visionDtype" },
    );
  }
  if (!hasProjector && settings.projectorDtype != null) {
    throw new EngineError(
      "invalid_configuration",
      "This model has no projector with a type of its own. Leave the projector's dtype out.",
      { setting: "visionDtype" },
    );
  }
  const vision = partOf("vision tower", wanted.visionDtype, device, decoder);
  const projector = hasProjector ? partOf("projector", wanted.projectorDtype ?? vision.dtype, device, decoder) : vision;
  const isDefault = (part: VisionPart): boolean => part.dtype === decoder.dtype && part.device === decoder.device;
  return {
    vision,
    projector,
    areDefault: Object.values(wanted).every((value) => value === null) || (isDefault(vision) && isDefault(projector)),
  };
}

/** @throws EngineError `invalid_configuration` if one of the settings is given: there is nothing that it could change. */
export function refuseVisionParts(
  { visionDtype, visionDevice, projectorDtype, projectorDevice }: VisionPartSettings,
  reason: string,
): void {
  if ((visionDtype ?? visionDevice ?? projectorDtype ?? projectorDevice ?? null) === null) return;
  throw new EngineError(
    "invalid_configuration",
    `${reason} Leave the dtype and the device of the vision tower and the projector out.`,
    { setting: "visionDtype" },
  );
}

/** Types that the operators of vision graphs have. Only the CPU's graphs quantise them. */
const supportedDtypes: Readonly<Record<DeviceName, readonly ResolvedDtype[]>> = {
  cpu: ["float32", "int8"],
  cuda: ["float32", "bfloat16", "float16"],
  webgpu: ["float32", "float16"],
};

function partOf(
  part: string,
  wanted: DtypeName | null,
  device: DeviceName,
  decoder: Decoder,
): VisionPart & { readonly precision: Precision } {
  const dtype = wanted === null || wanted === "auto" ? exactDtype(device, decoder) : wanted;
  if (!supportedDtypes[device].includes(dtype)) {
    throw new EngineError(
      "invalid_configuration",
      `The ${part} cannot be ${dtype} on ${device}. Set its dtype to one of ${supportedDtypes[device].join(", ")}.`,
      { setting: "visionDtype" },
    );
  }
  const precision = precisionOf(dtype, device);
  const isKept = decoder.keepsIntegers === true && (wanted === null || wanted === "auto" || wanted === "int8");
  return {
    dtype,
    device,
    precision: {
      ...precision,
      ...(dtype === "int8" && { vision: precision.linear }),
      ...(isKept && { keepsIntegers: true }),
    },
  };
}

/** The vision part of a quantised model stays exact. */
function exactDtype(device: DeviceName, decoder: VisionPart): ResolvedDtype {
  if (device === "cpu") return "float32";
  const isOnSameDevice = device === decoder.device;
  const isQuantised = decoder.dtype === "int8" || decoder.dtype === "int4";
  return isOnSameDevice && !isQuantised ? decoder.dtype : "float16";
}

function dtypeParam({ pipelineParams }: VisionPartSettings, name: string, decoder: VisionPart): DtypeName | null {
  const bits = pipelineParams?.[name] ?? null;
  switch (bits) {
    case null:
      return null;
    case 8:
      return "int8";
    case 16:
      return decoder.dtype === "bfloat16" ? "bfloat16" : "float16";
    case 32:
      return "float32";
    default:
      throw paramError(name, bits, "8, 16 or 32");
  }
}

/** As PyTorch spells devices: `cuda:0`. */
function deviceParam({ pipelineParams }: VisionPartSettings, name: string, { deviceId }: Decoder): DeviceName | null {
  const value = pipelineParams?.[name] ?? null;
  if (value === null) return null;
  const [device, number] = typeof value === "string" ? value.split(":", 2) : [];
  const known = deviceNames.find((candidate) => candidate === device);
  const isOther = number !== undefined && number !== String(deviceId);
  if (known !== undefined && !isOther) return known;
  throw paramError(
    name,
    value,
    `${deviceNames.join(", ")}, with the number ${deviceId} of the engine's device or none`,
  );
}

function paramError(name: string, value: unknown, expected: string): EngineError {
  return new EngineError(
    "invalid_configuration",
    `The pipeline parameter ${name} is ${shown(value)}; expected ${expected}.`,
    { setting: "pipelineParams" },
  );
}
