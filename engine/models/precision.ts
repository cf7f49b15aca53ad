/** Maps the `dtype` setting to the precisions of a model. */
import { z } from "zod";

import type { DeviceName, DtypeName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import type { WeightFormat } from "../weights/prepared-weights.ts";
import { readQuantisation } from "../weights/quantised/quantised-tensors.ts";
import type { Precision } from "./graph-context.ts";

export type ResolvedDtype = Exclude<DtypeName, "auto">;

export interface PrecisionOptions {
  readonly dtype: DtypeName;
  readonly device: DeviceName;
  /** The content of config.json, which names the type of the checkpoint's tensors. */
  readonly config: unknown;
}

/**
 * Whether the setting keeps integers that the checkpoint stores. A type of floats asks for floats; all others leave
 * quantised layers as they are, and apply to the rest.
 */
export function keepsIntegers({ dtype, config }: Pick<PrecisionOptions, "dtype" | "config">): boolean {
  const asksForFloats = dtype === "float32" || dtype === "float16" || dtype === "bfloat16";
  return !asksForFloats && readQuantisation(config)?.keepsIntegers === true;
}

/** @throws EngineError `invalid_configuration` for a dtype that the device does not support. */
export function resolveDtype({ dtype, device, config }: PrecisionOptions): ResolvedDtype {
  const resolved = dtype === "auto" ? automaticDtype(device, config) : dtype;
  if (!supportedDtypes[device].includes(resolved)) {
    throw new EngineError(
      "invalid_configuration",
      `dtype ${resolved} is not for ${device}: ONNX Runtime has no ${resolved} attention there. ` +
        `Set dtype to one of ${supportedDtypes[device].join(", ")}.`,
      { setting: "dtype" },
    );
  }
  return resolved;
}

const supportedDtypes: Readonly<Record<DeviceName, readonly ResolvedDtype[]>> = {
  cpu: ["float32", "int8", "int4"],
  cuda: ["bfloat16", "float16", "int8", "int4"],
  webgpu: ["float32", "float16", "int8", "int4"],
};

function automaticDtype(device: DeviceName, config: unknown): ResolvedDtype {
  switch (device) {
    case "cpu":
      return "float32";
    case "cuda":
      // The kernels for stored integers are fast with float16 activations only.
      return storesBfloat16(config) && readQuantisation(config)?.keepsIntegers !== true ? "bfloat16" : "float16";
    case "webgpu":
      return "float16";
  }
  return device satisfies never;
}

const dtypeFields = z.looseObject({ dtype: z.unknown(), torch_dtype: z.unknown(), text_config: z.unknown() }).partial();

/** In transformers' format: `dtype`, or `torch_dtype` before version 5, for the whole model or only for its text model. */
function storesBfloat16(config: unknown): boolean {
  const fields = dtypeFields.safeParse(config);
  if (!fields.success) return false;
  const { dtype, torch_dtype: torchDtype, text_config: textConfig } = fields.data;
  const stored = dtype ?? torchDtype;
  return stored == null ? textConfig !== undefined && storesBfloat16(textConfig) : stored === "bfloat16";
}

/**
 * Layers that have 8-bit weights beside those with which a few newest tokens are computed: `own` are those that Fovea
 * quantises to 4 bits; `all` are these and those whose integers the checkpoint stores in blocks.
 */
export type WidenedLayers = "none" | "own" | "all";

const float32 = { kind: "plain", elementType: "float32" } as const;
const float16 = { kind: "plain", elementType: "float16" } as const;
const bfloat16 = { kind: "plain", elementType: "bfloat16" } as const;

/**
 * On the CPU, 8 bits means W8A8: two to three times as fast as block-wise weights wherever several tokens are computed
 * together, and close to them in divergence from float32 (`quantised-fidelity.test.ts`). It is also used for the
 * vocabulary projection of 4-bit models, because nothing after the projection could even out its rounding errors. No
 * other provider has these kernels, so GPUs use 8-bit blocks there.
 *
 * Blocks of 64 instead of 32 weights have an error of 9.0 instead of 8.1 % of normally distributed weights' norm
 * (llama.cpp's Q4_0, of the same size in bytes: 8.6 %), for a prefill that is 14 % faster. On cuda, the fused kernels
 * support only blocks of 32 and float16 activations.
 *
 * On cuda, experts are float16 in `bfloat16` too: CUDA's `MoE` of ONNX Runtime 1.30 reads logits of a router in bfloat16
 * as if they were float32.
 *
 * @param widened Layers that have 8-bit weights for prompts and large batches: prompts of 4-bit weights are three to ten
 *   times as fast on the CPU, for three times the memory of the weights.
 */
export function precisionOf(dtype: ResolvedDtype, device: DeviceName, widened: WidenedLayers = "none"): Precision {
  const isCpu = device === "cpu";
  const exact = isCpu ? float32 : float16;
  const activations = exact.elementType;
  const int8: WeightFormat = isCpu ? { kind: "per-channel-int8" } : { kind: "blockwise", bits: 8, blockSize: 32 };
  const int4: WeightFormat = { kind: "blockwise", bits: 4, blockSize: device === "cuda" ? 32 : 64 };
  const forPrompts = { ...int8 };
  const prompts: Precision["prompts"] = {
    ...(widened !== "none" && dtype === "int4" && { linear: forPrompts }),
    ...(widened === "all" && { blocks: forPrompts }),
  };
  const more = Object.keys(prompts).length === 0 ? {} : { prompts };
  const fused: Pick<Precision, "experts"> = device === "cuda" ? { experts: float16 } : {};
  switch (dtype) {
    case "float32":
      return { activations: "float32", linear: float32, head: float32, vision: float32, ...more };
    case "float16":
      return { activations: "float16", linear: float16, head: float16, vision: float16, ...fused };
    case "bfloat16":
      return { activations: "bfloat16", linear: bfloat16, head: bfloat16, vision: bfloat16, ...fused };
    // The vision tower stays exact: it runs once per picture, and everything said about the picture depends on it.
    case "int8":
      return { activations, linear: int8, head: int8, vision: exact, ...more };
    case "int4":
      return { activations, linear: int4, head: int8, vision: exact, ...more };
  }
  return dtype satisfies never;
}
