/** From the `dtype` setting to the numbers a model computes in. */
import type { DeviceName, DtypeName } from "../config.ts";
import { EngineError } from "../errors.ts";
import type { Precision } from "./graph-context.ts";

export type ResolvedDtype = Exclude<DtypeName, "auto">;

/** @throws EngineError `invalid_configuration` for a dtype that the device does not compute in. */
export function resolveDtype(dtype: DtypeName, device: DeviceName): ResolvedDtype {
  const resolved = dtype === "auto" ? (device === "cpu" ? "float32" : "float16") : dtype;
  if (resolved === "float16" && device === "cpu") {
    throw new EngineError(
      "invalid_configuration",
      "dtype float16 is for GPU devices: ONNX Runtime has no float16 attention on cpu. Take float32, int8 or int4 there.",
    );
  }
  return resolved;
}

export function precisionOf(dtype: ResolvedDtype): Precision {
  const float32 = { kind: "plain", elementType: "float32" } as const;
  const float16 = { kind: "plain", elementType: "float16" } as const;
  const int8 = { kind: "per-channel-int8" } as const;
  const int4 = { kind: "blockwise", bits: 4, blockSize: 32 } as const;
  switch (dtype) {
    case "float32":
      return { activations: "float32", linear: float32, head: float32, vision: float32 };
    case "float16":
      return { activations: "float16", linear: float16, head: float16, vision: float16 };
    case "int8":
      return { activations: "float32", linear: int8, head: int8, vision: float32 };
    case "int4":
      return { activations: "float32", linear: int4, head: int8, vision: float32 };
  }
  return dtype satisfies never;
}
