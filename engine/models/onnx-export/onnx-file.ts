/** A file of an export with its inputs and outputs; its weights are not read. */
import { stat } from "node:fs/promises";
import { basename, join } from "node:path";

import { EngineError } from "../../contract/errors.ts";
import { readOnnxHeader, type OnnxHeader, type OnnxValue } from "../../graph/onnx-header.ts";
import { onnxDataTypes } from "../../graph/onnx-schema.ts";
import { onnxFolder } from "../../weights/onnx-variants.ts";

export interface OnnxFile extends OnnxHeader {
  /** Name below the checkpoint's folder. */
  readonly name: string;
  /** Absolute path. */
  readonly path: string;
  /** Absolute paths of all its files, starting with itself. */
  readonly files: readonly string[];
  /** Total size of these files. */
  readonly byteLength: number;
}

/** @throws EngineError `invalid_checkpoint` that names the file that is missing or not ONNX. */
export async function openOnnxFile(checkpointFolder: string, fileName: string): Promise<OnnxFile> {
  const folder = join(checkpointFolder, onnxFolder);
  const name = `${onnxFolder}/${fileName}`;
  const path = join(folder, fileName);
  const header = await readOnnxHeader(path);
  const files = [path];
  for (const location of header.externalFiles) {
    // A name with folders could lead out of the checkpoint.
    const isBeside = location === basename(location) && location !== "..";
    const stats = isBeside ? await stat(join(folder, location)).catch(() => null) : null;
    if (stats?.isFile() !== true) {
      throw new EngineError(
        "invalid_checkpoint",
        `${name} has weights in ${location}, which is not in the same folder.`,
      );
    }
    files.push(join(folder, location));
  }
  const sizes = await Promise.all(files.map(async (file) => (await stat(file)).size));
  return { ...header, name, path, files, byteLength: sizes.reduce((sum, size) => sum + size, 0) };
}

const elementTypes = {
  [onnxDataTypes.float32]: "float32",
  [onnxDataTypes.float16]: "float16",
  [onnxDataTypes.int64]: "int64",
  9: "bool",
} as const;

export type ExportedElementType = "float32" | "float16" | "int64" | "bool";

/**
 * @param accepted Supported element types.
 * @throws EngineError `unsupported_model` that names file, value and type.
 */
export function elementTypeIn<Accepted extends ExportedElementType>(
  file: OnnxFile,
  { name, dataType }: OnnxValue,
  accepted: readonly Accepted[],
): Accepted {
  const elementType: ExportedElementType | undefined = elementTypes[dataType];
  const found = accepted.find((candidate) => candidate === elementType);
  if (found !== undefined) return found;
  throw new EngineError(
    "unsupported_model",
    `${file.name}: ${name} has ONNX element type ${elementType ?? dataType}; expected ${accepted.join(" or ")}.`,
  );
}

/** @throws EngineError `unsupported_model` that lists what the file has instead. */
export function requireValue(file: OnnxFile, kind: "inputs" | "outputs", name: string): OnnxValue {
  const value = file[kind].get(name);
  if (value !== undefined) return value;
  const names = [...file[kind].keys()].join(", ");
  throw new EngineError(
    "unsupported_model",
    `${file.name} has no ${kind.slice(0, -1)} ${name}; its ${kind} are ${names}.`,
  );
}

/** Rejects unknown inputs. Throws EngineError `unsupported_model` that names file and input. */
export function refuseOtherInputs(file: OnnxFile, known: ReadonlySet<string>): void {
  const other = [...file.inputs.keys()].find((name) => !known.has(name));
  if (other === undefined) return;
  throw new EngineError(
    "unsupported_model",
    `${file.name} has an input ${other}, which is not supported; supported are ${[...known].join(", ")}.`,
  );
}

/**
 * Checks a value's sizes against config.json. Null matches any size, and so does a size that the file leaves open.
 *
 * @throws EngineError `invalid_checkpoint` with both shapes, `unsupported_model` for another number of dimensions.
 */
export function requireShape(file: OnnxFile, { name, shape }: OnnxValue, expected: readonly (number | null)[]): void {
  if (shape === null) return;
  const wanted = `[${expected.map((size) => size ?? "any").join(", ")}]`;
  if (shape.length !== expected.length) {
    throw new EngineError(
      "unsupported_model",
      `${file.name}: ${name} has shape [${shape.join(", ")}]; expected ${wanted}.`,
    );
  }
  const agrees = shape.every(
    (size, axis) => expected[axis] === null || typeof size === "string" || size === expected[axis],
  );
  if (agrees) return;
  throw new EngineError(
    "invalid_checkpoint",
    `${file.name}: ${name} has shape [${shape.join(", ")}]; config.json implies ${wanted}.`,
  );
}
