import { expect, test } from "vitest";

import type { DeviceName } from "../../../engine/contract/config.ts";
import type { ResolvedDtype } from "../../../engine/models/precision.ts";
import { resolveVisionParts, type VisionPartSettings } from "../../../engine/models/vision-parts.ts";

function resolve(settings: VisionPartSettings, dtype: ResolvedDtype, device: DeviceName, hasProjector = true) {
  const { vision, projector, areDefault } = resolveVisionParts(settings, { dtype, device, deviceId: 0 }, hasProjector);
  const shown = (part: typeof vision) => `${part.dtype} on ${part.device}`;
  return [shown(vision), shown(projector), areDefault];
}

test.for<[VisionPartSettings, ResolvedDtype, DeviceName, string[]]>([
  [{}, "float32", "cpu", ["float32 on cpu", "float32 on cpu"]],
  [{}, "int4", "cpu", ["float32 on cpu", "float32 on cpu"]],
  [{}, "bfloat16", "cuda", ["bfloat16 on cuda", "bfloat16 on cuda"]],
  [{}, "int8", "cuda", ["float16 on cuda", "float16 on cuda"]],
  [{ visionDtype: "int8" }, "float32", "cpu", ["int8 on cpu", "int8 on cpu"]],
  [{ projectorDtype: "int8" }, "float32", "cpu", ["float32 on cpu", "int8 on cpu"]],
  [{ visionDtype: "auto" }, "float32", "cpu", ["float32 on cpu", "float32 on cpu"]],
  [{ visionDevice: "cpu" }, "bfloat16", "cuda", ["float32 on cpu", "float32 on cpu"]],
  [{ visionDevice: "cuda" }, "float32", "cpu", ["float16 on cuda", "float16 on cuda"]],
  [{ visionDtype: "float32" }, "float16", "cuda", ["float32 on cuda", "float32 on cuda"]],
  [
    { pipelineParams: { vision_bits: 32, projector_bits: 16, vision_device: "cuda:0" } },
    "float16",
    "cuda",
    ["float32 on cuda", "float16 on cuda"],
  ],
  [{ pipelineParams: { vision_bits: 16 } }, "bfloat16", "cuda", ["bfloat16 on cuda", "bfloat16 on cuda"]],
  [{ pipelineParams: { vision_bits: 8 } }, "float32", "cpu", ["int8 on cpu", "int8 on cpu"]],
  [
    { visionDtype: "float32", pipelineParams: { vision_bits: 8, projector_device: "cpu" } },
    "float32",
    "cpu",
    ["float32 on cpu", "float32 on cpu"],
  ],
])("%j with a decoder in %s on %s", ([settings, dtype, device, expected]) => {
  const [vision, projector] = resolve(settings, dtype, device);
  expect([vision, projector]).toEqual(expected);
});

test("parts like the decoder's count as default, so that their caches stay valid", () => {
  expect(resolve({}, "int8", "cuda")[2]).toBe(true);
  expect(resolve({ visionDtype: "float32" }, "float32", "cpu")[2]).toBe(true);
  expect(resolve({ visionDtype: "int8" }, "float32", "cpu")[2]).toBe(false);
  expect(resolve({ projectorDtype: "int8" }, "float32", "cpu")[2]).toBe(false);
});

test.for<[VisionPartSettings, DeviceName, RegExp]>([
  [{ visionDtype: "float16" }, "cpu", /vision tower cannot be float16 on cpu\. .* one of float32, int8\./],
  [{ visionDtype: "int4" }, "cpu", /vision tower cannot be int4 on cpu/],
  [{ projectorDtype: "bfloat16" }, "cpu", /projector cannot be bfloat16 on cpu/],
  [{ visionDtype: "int8" }, "cuda", /cannot be int8 on cuda\. .* one of float32, bfloat16, float16\./],
  [{ projectorDevice: "cpu" }, "cuda", /projector cannot be on cpu with the vision tower on cuda: they are one graph/],
  [{ pipelineParams: { vision_bits: 4 } }, "cpu", /vision_bits is 4; expected 8, 16 or 32/],
  [{ pipelineParams: { vision_bits: "16" } }, "cpu", /vision_bits is "16"; expected 8, 16 or 32/],
  [{ pipelineParams: { vision_bits: 16 } }, "cpu", /vision tower cannot be float16 on cpu/],
  [{ pipelineParams: { vision_device: "cuda:1" } }, "cuda", /vision_device is "cuda:1"; expected .* number 0 /],
  [{ pipelineParams: { projector_device: "tpu" } }, "cpu", /projector_device is "tpu"; expected cpu, cuda, webgpu/],
])("refuses %j on %s", ([settings, device, message]) => {
  const dtype = device === "cpu" ? "float32" : "float16";
  expect(() => resolve(settings, dtype, device)).toThrow(
    expect.objectContaining({ code: "invalid_configuration", message: expect.stringMatching(message) }),
  );
});

test("refuses a type for the projector of a model that does not tell it from its tower", () => {
  expect(() => resolve({ projectorDtype: "float32" }, "float32", "cpu", false)).toThrow(/no projector/);
});
