/** Names of a checkpoint's weight files, and the error for a missing one. */
import { EngineError } from "../contract/errors.ts";
import { onnxFolder } from "./onnx-variants.ts";

export const singleFileName = "model.safetensors";
export const indexFileName = "model.safetensors.index.json";
export const weightFileNames = `${singleFileName} and ${indexFileName} and an export in ${onnxFolder}/`;

export function lacks(reference: string, fileName: string): EngineError {
  return new EngineError("invalid_checkpoint", `The checkpoint ${reference} lacks ${fileName}.`);
}
