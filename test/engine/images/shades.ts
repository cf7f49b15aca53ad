/** A pixel program for tests: the mean of each channel of the picture, resized to `options.edge`. */
import { EngineError } from "../../../engine/contract/errors.ts";
import type { PixelProgram } from "../../../engine/multimodal/pixel-program.ts";

export const toTensors: PixelProgram = (image, { edge }, { resample }) => {
  if (typeof edge !== "number")
    throw new EngineError("unsupported_model", `The edge ${JSON.stringify(edge)} is no number.`);
  const { data } = resample(image, { width: edge, height: edge, filter: "bilinear" });
  const sums = new Float32Array(3);
  for (const [index, value] of data.entries()) sums[index % 3]! += value;
  const means = sums.map((sum) => sum / (edge * edge));
  return new Map([
    ["shades", { elementType: "float32", shape: [3], data: means }],
    ["size", { elementType: "int64", shape: [2], data: BigInt64Array.of(BigInt(image.height), BigInt(image.width)) }],
  ]);
};
