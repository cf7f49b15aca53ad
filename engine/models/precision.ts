/** Maps the `dtype` setting to the precisions of a model. */
import type { DeviceName, DtypeName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import type { WeightFormat } from "../weights/prepared-weights.ts";
import type { Precision } from "./graph-context.ts";

export type ResolvedDtype = Exclude<DtypeName, "auto">;

/** @throws EngineError `invalid_configuration` for a dtype that the device does not support. */
export function resolveDtype(dtype: DtypeName, device: DeviceName): ResolvedDtype {
  const resolved = dtype === "auto" ? (device === "cpu" ? "float32" : "float16") : dtype;
  if (resolved === "float16" && device === "cpu") {
    throw new EngineError(
      "invalid_configuration",
      "dtype float16 is for GPU devices: ONNX Runtime has no float16 attention on cpu. Use float32, int8 or int4 on cpu.",
    );
  }
  return resolved;
}

const float32 = { kind: "plain", elementType: "float32" } as const;
const float16 = { kind: "plain", elementType: "float16" } as const;

/**
 * On the CPU, 8 bits means W8A8: two to three times as fast as block-wise weights wherever several tokens are computed
 * together, and close to them in divergence from float32 (`quantised-fidelity.test.ts`). It is also used for the
 * vocabulary projection of 4-bit models, because nothing after the projection could even out its rounding errors. No
 * other provider has these kernels, so GPUs use 8-bit blocks there.
 *
 * Blocks of 64 instead of 32 weights have an error of 9.0 instead of 8.1 % of normally distributed weights' norm
 * (llama.cpp's Q4_0, of the same size in bytes: 8.6 %), for a prefill that is 14 % faster.
 */
export function precisionOf(dtype: ResolvedDtype, device: DeviceName): Precision {
  const isCpu = device === "cpu";
  const exact = isCpu ? float32 : float16;
  const activations = exact.elementType;
  const int8: WeightFormat = isCpu ? { kind: "per-channel-int8" } : { kind: "blockwise", bits: 8, blockSize: 32 };
  const int4: WeightFormat = { kind: "blockwise", bits: 4, blockSize: 64 };
  switch (dtype) {
    case "float32":
      return { activations: "float32", linear: float32, head: float32, vision: float32 };
    case "float16":
      return { activations: "float16", linear: float16, head: float16, vision: float16 };
    // The vision tower stays exact: it runs once per picture, and everything said about the picture depends on it.
    case "int8":
      return { activations, linear: int8, head: int8, vision: exact };
    case "int4":
      return { activations, linear: int4, head: int8, vision: exact };
  }
  return dtype satisfies never;
}
