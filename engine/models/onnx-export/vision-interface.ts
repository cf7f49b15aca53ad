/** Reads the inputs of an exported vision encoder and assigns an image's tensors to them. */
import { EngineError } from "../../contract/errors.ts";
import type { OnnxValue } from "../../graph/onnx-header.ts";
import type { ExportedVisionInput, PatchOrder, VisionEncoderExport, VisionEncoderInput } from "../built-model.ts";
import type { VisionEncoderDefinition } from "../model-definition.ts";
import { elementTypeIn, refuseOtherInputs, requireShape, requireValue, type OnnxFile } from "./onnx-file.ts";

/** Inputs whose names in exports differ from transformers'. */
const exportedNames: Readonly<Record<string, string>> = { image_grid_thw: "grid_thw" };

/** 1 for each pixel that belongs to the picture; pictures are not padded here. */
const pixelMask = "pixel_attention_mask";

/** @throws EngineError `unsupported_model` and `invalid_checkpoint` that name the file and what is expected of it. */
export function readVisionInterface(
  definition: VisionEncoderDefinition,
  hiddenSize: number,
  file: OnnxFile,
): VisionEncoderExport {
  const { inputs, imageSize, numImageTokens, patchOrder, refusesExports } = definition;
  if (refusesExports !== undefined) {
    throw new EngineError(
      "unsupported_model",
      `${file.name} is not supported: ${refusesExports}. Use the checkpoint's safetensors files.`,
    );
  }
  const picture = patchOrder === undefined ? null : readPicture(file, patchOrder);
  const exportedInputs = picture === null ? inputs.map((input) => readInput(file, input)) : [picture];
  const mask = file.inputs.get(pixelMask);
  if (mask !== undefined) {
    const elementType = elementTypeIn(file, mask, ["bool", "int64"]);
    exportedInputs.push({ name: pixelMask, elementType, source: null, hasBatch: true, patchOrder: null });
  }
  refuseOtherInputs(file, new Set(exportedInputs.map(({ name }) => name)));
  const features = requireValue(file, "outputs", "image_features");
  elementTypeIn(file, features, ["float32", "float16"]);
  if (features.shape !== null) {
    requireShape(file, features, [...features.shape.slice(0, -1).map(() => null), hiddenSize]);
  }
  const imageOptions = { ...definition.imageOptions, ...definition.exportImageOptions };
  const shape = { inputs, imageSize, numImageTokens, imageOptions };
  return { form: "export", path: file.path, weightBytes: file.byteLength, ...shape, exportedInputs };
}

function readInput(file: OnnxFile, { name, elementType, shape }: VisionEncoderInput): ExportedVisionInput {
  const otherName = exportedNames[name] ?? name;
  const value = file.inputs.get(otherName) ?? requireValue(file, "inputs", name);
  const accepted = elementType === "float32" ? (["float32", "float16"] as const) : (["int64"] as const);
  return {
    name: value.name,
    elementType: elementTypeIn<"float32" | "float16" | "int64">(file, value, accepted),
    source: name,
    hasBatch: hasBatch(file, value, shape),
    patchOrder: null,
  };
}

const pixelValues = "pixel_values";

/** The input of an encoder that divides a picture itself; null if the file takes patches. */
function readPicture(file: OnnxFile, patchOrder: PatchOrder): ExportedVisionInput | null {
  const value = file.inputs.get(pixelValues);
  if (value?.shape?.length !== 4) return null;
  requireShape(file, value, [null, 3, null, null]);
  const elementType = elementTypeIn(file, value, ["float32", "float16"]);
  return { name: pixelValues, elementType, source: pixelValues, hasBatch: true, patchOrder };
}

function hasBatch(file: OnnxFile, value: OnnxValue, shape: VisionEncoderInput["shape"]): boolean {
  const sizes = shape.map((size) => (typeof size === "number" ? size : null));
  if (value.shape === null) {
    throw new EngineError("unsupported_model", `${file.name} does not declare the shape of ${value.name}.`);
  }
  const isItem = value.shape.length === shape.length;
  requireShape(file, value, isItem ? sizes : [null, ...sizes]);
  return !isItem;
}
