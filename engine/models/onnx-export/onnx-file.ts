/** A file of an export with its inputs and outputs; its weights are not read. */
import { stat } from "node:fs/promises";
import { basename, join } from "node:path";

import { EngineError } from "../../contract/errors.ts";
import { readOnnxHeader, type OnnxHeader, type OnnxValue } from "../../graph/onnx-header.ts";
import { onnxDataTypes } from "../../graph/onnx-schema.ts";
import { onnxFolder } from "../../weights/onnx-variants.ts";
import { describeGitLfsPointer, isGitLfsPointer, openRegularFile } from "../../weights/regular-file.ts";
import { isFile } from "../../weights/sound-folder.ts";

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

/** @throws EngineError `invalid_checkpoint` that names the file that is missing, truncated or not ONNX. */
export async function openOnnxFile(checkpointFolder: string, fileName: string): Promise<OnnxFile> {
  const folder = join(checkpointFolder, onnxFolder);
  const name = `${onnxFolder}/${fileName}`;
  const path = join(folder, fileName);
  const header = await readOnnxHeader(path);
  const files = [path];
  let byteLength = (await stat(path)).size;
  for (const [location, end] of header.externalFiles) {
    // A name with folders could lead out of the checkpoint.
    const isBeside = location === basename(location) && location !== "..";
    const weights = isBeside ? await findWeights(join(folder, location), end, name) : null;
    if (weights === null) {
      throw new EngineError(
        "invalid_checkpoint",
        `${name} has weights in ${location}, which is not in the same folder.`,
      );
    }
    files.push(join(folder, location));
    byteLength += weights.size;
  }
  return { ...header, name, path, files, byteLength };
}

/** Null if there is no such file beside the graph. Throws EngineError `invalid_checkpoint` if it ends before `end`. */
async function findWeights(path: string, end: number, owner: string): Promise<{ readonly size: number } | null> {
  const handle = (await isFile(path)) ? await openRegularFile(path) : null;
  if (handle === null) return null;
  try {
    const { size } = await handle.stat();
    if (size >= end) return { size };
    const name = `${onnxFolder}/${basename(path)}`;
    throw new EngineError(
      "invalid_checkpoint",
      (await isGitLfsPointer(handle))
        ? describeGitLfsPointer(name)
        : `${name} is truncated: the weights of ${owner} end at byte ${end}, the file at ${size}.`,
    );
  } finally {
    await handle.close();
  }
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

/**
 * Checks that sizes differ from run to run.
 *
 * @param axes Those of the lengths in the value's shape.
 * @throws EngineError `unsupported_model` with the shape.
 */
export function requireOpenLengths(file: OnnxFile, { name, shape }: OnnxValue, axes: readonly number[]): void {
  if (shape === null || axes.every((axis) => typeof shape[axis] === "string")) return;
  throw new EngineError(
    "unsupported_model",
    `${file.name}: ${name} has shape [${shape.join(", ")}], in which a length is fixed. Export it with dynamic axes.`,
  );
}
