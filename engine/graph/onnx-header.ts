/** Reads an ONNX file without its weights, which may take gigabytes. */
import type { FileHandle } from "node:fs/promises";
import { basename, normalize } from "node:path";
import protobuf from "protobufjs/light.js";

import { EngineError } from "../contract/errors.ts";
import { describeGitLfsPointer, isGitLfsPointer, openRegularFile } from "../weights/regular-file.ts";
import { decodeNode, decodeTensor, decodeValueInfo } from "./onnx-schema.ts";

export interface OnnxValue {
  readonly name: string;
  /** `TensorProto.DataType`. */
  readonly dataType: number;
  /** Sizes, or names of dimensions that vary from run to run; null if the file does not state a shape. */
  readonly shape: readonly (number | string)[] | null;
}

export interface OnnxHeader {
  /** By name, in file order. */
  readonly inputs: ReadonlyMap<string, OnnxValue>;
  readonly outputs: ReadonlyMap<string, OnnxValue>;
  /** Operators of the graph's nodes, without nested graphs. */
  readonly operators: ReadonlySet<string>;
  /** Where the last weight in each external file ends, by its location relative to the file's folder. */
  readonly externalFiles: ReadonlyMap<string, number>;
}

/** Field numbers of `onnx.proto3`. */
const GRAPH_FIELD = 7;
const NODE_FIELD = 1;
const INITIALIZER_FIELD = 5;
const INPUT_FIELD = 11;
const OUTPUT_FIELD = 12;

/** Enough for the description of a weight in another file, and for a node without a weight or graph. */
const MAX_DESCRIPTION_BYTES = 16 * 1024;
const WINDOW_BYTES = 64 * 1024;
const LENGTH_DELIMITED = 2;

/**
 * Reads the file in windows and skips everything else.
 *
 * @throws EngineError `invalid_checkpoint`, naming the file, if it cannot be read or is not ONNX.
 */
export async function readOnnxHeader(path: string): Promise<OnnxHeader> {
  const fileName = basename(path);
  const handle = await openRegularFile(path);
  if (handle === null) throw new EngineError("invalid_checkpoint", `${fileName} is missing.`);
  try {
    const { size } = await handle.stat();
    return await readModel(new FieldReader(handle), size);
  } catch (cause) {
    if (await isGitLfsPointer(handle)) throw new EngineError("invalid_checkpoint", describeGitLfsPointer(fileName));
    throw new EngineError("invalid_checkpoint", `${fileName} is not an ONNX file, or it is incomplete.`, { cause });
  } finally {
    await handle.close();
  }
}

async function readModel(reader: FieldReader, size: number): Promise<OnnxHeader> {
  const inputs = new Map<string, OnnxValue>();
  const outputs = new Map<string, OnnxValue>();
  const operators = new Set<string>();
  const externalFiles = new Map<string, number>();
  let hasGraph = false;
  for await (const model of reader.fields(0, size)) {
    if (model.number !== GRAPH_FIELD) continue;
    hasGraph = true;
    for await (const { number, start, end } of reader.fields(model.start, model.end)) {
      if (number === INPUT_FIELD || number === OUTPUT_FIELD) {
        const value = toValue(await reader.read(start, end));
        (number === INPUT_FIELD ? inputs : outputs).set(value.name, value);
      } else if (number === NODE_FIELD && end - start <= MAX_DESCRIPTION_BYTES) {
        operators.add(decodeNode(await reader.read(start, end)).opType ?? "");
      } else if (number === INITIALIZER_FIELD && end - start <= MAX_DESCRIPTION_BYTES) {
        const { externalData = [] } = decodeTensor(await reader.read(start, end));
        const {
          location,
          offset = 0,
          length = 0,
        } = Object.fromEntries(externalData.map(({ key, value }) => [key, value]));
        if (location === undefined) continue;
        const file = normalize(location);
        externalFiles.set(file, Math.max(externalFiles.get(file) ?? 0, Number(offset) + Number(length)));
      }
    }
  }
  if (!hasGraph) throw new Error("The file has no graph.");
  return { inputs, outputs, operators, externalFiles };
}

function toValue(bytes: Uint8Array): OnnxValue {
  const { name = "", type } = decodeValueInfo(bytes);
  const dimensions = type?.tensorType?.shape?.dim;
  const shape = dimensions?.map((dimension) =>
    "dimValue" in dimension ? dimension.dimValue : (dimension.dimParam ?? ""),
  );
  return { name, dataType: type?.tensorType?.elemType ?? 0, shape: shape ?? null };
}

interface Field {
  readonly number: number;
  /** Offset of its content in the file. */
  readonly start: number;
  readonly end: number;
}

/** Protobuf's wire format over a file. Mutable: keeps the last window. */
class FieldReader {
  readonly #handle: FileHandle;
  #window: Uint8Array = new Uint8Array(0);
  #windowStart = 0;

  constructor(handle: FileHandle) {
    this.#handle = handle;
  }

  /** Yields the fields of a message between two offsets. Throws for a field that ends behind it. */
  async *fields(start: number, end: number): AsyncGenerator<Field> {
    for (let at = start; at < end;) {
      const reader = new protobuf.Reader(await this.#around(at, end));
      const tag = reader.uint32();
      const number = tag >>> 3;
      const isMessage = (tag & 7) === LENGTH_DELIMITED;
      const length = isMessage ? Number(reader.uint64()) : 0;
      if (!isMessage) reader.skipType(tag & 7);
      const contentStart = at + reader.pos;
      at = contentStart + length;
      if (number === 0 || at > end) throw new Error(`A field ends at ${at}; its message ends at ${end}.`);
      if (isMessage) yield { number, start: contentStart, end: at };
    }
  }

  async read(start: number, end: number): Promise<Uint8Array> {
    const bytes = new Uint8Array(end - start);
    const { bytesRead } = await this.#handle.read(bytes, 0, bytes.byteLength, start);
    if (bytesRead < bytes.byteLength) throw new Error(`${bytes.byteLength} bytes are needed; ${bytesRead} are left.`);
    return bytes;
  }

  /** Returns enough bytes, starting at an offset, for the head of a field. */
  async #around(at: number, end: number): Promise<Uint8Array> {
    const enough = 32;
    const offset = at - this.#windowStart;
    const isInside = offset >= 0 && offset + Math.min(enough, end - at) <= this.#window.byteLength;
    if (!isInside) {
      this.#window = await this.read(at, Math.min(at + WINDOW_BYTES, end));
      this.#windowStart = at;
    }
    return this.#window.subarray(at - this.#windowStart);
  }
}
