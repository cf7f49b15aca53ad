import { expect, test } from "vitest";

import type { DtypeName } from "../../../engine/contract/config.ts";
import type { EngineError } from "../../../engine/contract/errors.ts";
import { belongsTo, chooseOnnxFiles } from "../../../engine/weights/onnx-variants.ts";

/** As in a repository of the hub. */
const suffixes = ["", "_fp16", "_int8", "_uint8", "_quantized", "_q4", "_q4f16", "_bnb4"];
const complete = ["embed_tokens", "decoder_model_merged", "vision_encoder"].flatMap((part) =>
  suffixes.map((suffix) => `${part}${suffix}.onnx`),
);

function without(...missing: readonly string[]): string[] {
  return complete.filter((fileName) => !missing.includes(fileName));
}

test.for<[DtypeName, string]>([
  ["auto", ""],
  ["float32", ""],
  ["float16", "_fp16"],
  ["int8", "_quantized"],
  ["int4", "_q4"],
])("%s selects the files with the suffix %j", ([dtype, suffix]) => {
  expect(chooseOnnxFiles(complete, { dtype, device: "cpu" })).toEqual({
    decoder: `decoder_model_merged${suffix}.onnx`,
    embedTokens: `embed_tokens${suffix}.onnx`,
    visionEncoder: `vision_encoder${suffix}.onnx`,
  });
});

test("another quantisation with the same number of bits is accepted", () => {
  const int8 = chooseOnnxFiles(without("decoder_model_merged_quantized.onnx"), { dtype: "int8", device: "cpu" });
  expect(int8.decoder).toBe("decoder_model_merged_int8.onnx");
  expect(chooseOnnxFiles(["model_bnb4.onnx", "model_q4f16.onnx"], { dtype: "int4", device: "cpu" }).decoder).toBe(
    "model_bnb4.onnx",
  );
});

test("embeddings and vision encoder in finer types are accepted, never coarser ones", () => {
  const files = without("embed_tokens_q4.onnx", "embed_tokens_q4f16.onnx", "embed_tokens_bnb4.onnx").filter(
    (fileName) => !fileName.startsWith("vision_encoder_"),
  );
  expect(chooseOnnxFiles(files, { dtype: "int4", device: "cpu" })).toEqual({
    decoder: "decoder_model_merged_q4.onnx",
    embedTokens: "embed_tokens_quantized.onnx",
    visionEncoder: "vision_encoder.onnx",
  });
  const coarser = without("vision_encoder.onnx");
  expect(chooseOnnxFiles(coarser, { dtype: "float32", device: "cpu" }).visionEncoder).toBeNull();
});

test("a decoder that is missing in the dtype is an error that lists the existing ones", () => {
  const files = [
    "embed_tokens.onnx",
    "decoder_model_merged_q4.onnx",
    "decoder_model_merged_fp16.onnx",
    "decoder_model_merged_bf16.onnx",
    "vision_encoder.onnx",
  ];
  const choose = (): unknown => chooseOnnxFiles(files, { dtype: "float32", device: "cpu" });
  expect(choose).toThrow(
    expect.objectContaining<Partial<EngineError>>({
      code: "invalid_configuration",
      message:
        "The export has no decoder in float32, onnx/decoder_model_merged.onnx. " +
        "There are: decoder_model_merged_bf16.onnx (bfloat16), decoder_model_merged_fp16.onnx (float16), decoder_model_merged_q4.onnx (int4).",
    }),
  );
});

test("an export of a text model is one file", () => {
  const files = ["model.onnx", "model_quantized.onnx"];
  const none = { embedTokens: null, visionEncoder: null };
  expect(chooseOnnxFiles(files, { dtype: "auto", device: "cpu" })).toEqual({ decoder: "model.onnx", ...none });
  expect(chooseOnnxFiles(files, { dtype: "int8", device: "cpu" })).toEqual({
    decoder: "model_quantized.onnx",
    ...none,
  });
});

test("weights next to a file belong to it and to no other variant", () => {
  const files = { decoder: "model_q4.onnx", embedTokens: null, visionEncoder: null };
  const taken = ["model_q4.onnx", "model_q4.onnx_data", "model_q4.onnx_data_1", "model_q4.onnx.data"];
  const others = ["model.onnx", "model.onnx_data", "model_q4f16.onnx", "model_q4f16.onnx_data", "model_q4.onnx.bak"];
  expect([...others, ...taken].filter((fileName) => belongsTo(fileName, files))).toEqual(taken);
});
