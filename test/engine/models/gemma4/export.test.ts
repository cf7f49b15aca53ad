import { expect, test } from "vitest";

import { gemma4TextDefinition } from "../../../../engine/models/gemma4/definition.ts";
import { readDecoderInterface } from "../../../../engine/models/onnx-export/decoder-interface.ts";

test("an export is rejected, because its cache would have layers of different sizes", () => {
  const model = gemma4TextDefinition.configure({ hidden_size: 64 });
  const file = {
    name: "onnx/model.onnx",
    path: "/onnx/model.onnx",
    inputs: new Map(),
    outputs: new Map(),
    operators: new Set<string>(),
    files: [],
    externalFiles: new Map<string, number>(),
    byteLength: 0,
  };
  expect(() => readDecoderInterface(model, file, null)).toThrow(
    "onnx/model.onnx: an export whose layers have different heads is not supported; use the checkpoint's safetensors files.",
  );
});
