/**
 * Joins the matrices of several adapters, so that two products compute the updates of all of them. Each adapter has
 * columns of its own between the two products; a run keeps those of the adapter that a token's request chose.
 */
import { hash } from "node:crypto";
import { open, stat } from "node:fs/promises";
import { resolve } from "node:path";

import { EngineError } from "../../contract/errors.ts";
import { writeAtomically } from "../atomic-file.ts";
import {
  isFloat,
  LARGEST_FLOAT16,
  toBfloat16,
  toFloat16,
  toFloat32,
  type FloatElementType,
} from "../float-conversion.ts";
import { readFilePart } from "../read-file-part.ts";
import { bytesPerElement } from "../safetensors.ts";
import type { StoredTensor } from "../stored-tensor.ts";
import { rankOf, type NamedAdapter } from "./named-adapter.ts";

/** Increase it when the same request produces other bytes, so that older files are not reused. */
const FORMAT_VERSION = 1;

const ALIGNMENT = 64;

/** Layers that are computed as one product: the rows of their outputs one after the other. */
export interface AdapterRequest {
  /** Of the matrices in the graph. */
  readonly name: string;
  readonly layers: readonly { readonly name: string; readonly outFeatures: number }[];
  readonly inFeatures: number;
  readonly elementType: FloatElementType;
}

/**
 * `input x down^T`, of which the columns of other adapters are set to 0, and the product of that and `up` are added to
 * the outputs. Columns are grouped by layers that any adapter changes, and within a layer by adapters, each with as many
 * as its largest rank.
 */
export interface AdapterMatrices {
  /** [columns, in]. */
  readonly down: StoredTensor;
  /** [columns, out]. Contains the scales. */
  readonly up: StoredTensor;
  /** Number of layers that any adapter changes. */
  readonly numLayers: number;
}

/** Of files that are not made yet; null if no adapter changes any of the layers. */
export function imagineMatrices(adapters: readonly NamedAdapter[], request: AdapterRequest): AdapterMatrices | null {
  return placeMatrices(adapters, request, "/", 0)?.matrices ?? null;
}

export interface PrepareAdaptersOptions {
  readonly cacheFolder: string;
  readonly signal?: AbortSignal | undefined;
}

/**
 * The matrices of each request by its name, in one file below `cacheFolder` that is named by content.
 *
 * @throws EngineError `invalid_checkpoint` (a value is no number, or too large for the type), `invalid_configuration` (the
 *   cache folder is not writable), `aborted`.
 */
export async function prepareAdapters(
  adapters: readonly NamedAdapter[],
  requests: readonly AdapterRequest[],
  { cacheFolder, signal }: PrepareAdaptersOptions,
): Promise<ReadonlyMap<string, AdapterMatrices>> {
  if (requests.length === 0) return new Map();
  const hashes = await Promise.all(adapters.map(({ contentHash }) => contentHash(signal)));
  const key = hash("sha256", JSON.stringify([FORMAT_VERSION, hashes, requests]));
  const file = resolve(cacheFolder, "weights", `${key}.adapters.bin`);
  let fileBytes = 0;
  const placed = requests.flatMap((request) => {
    const found = placeMatrices(adapters, request, file, fileBytes);
    if (found === null) return [];
    fileBytes = found.endByte;
    return [{ request, matrices: found.matrices }];
  });
  const isWhole = await stat(file).then(
    ({ size }) => size === fileBytes,
    () => false,
  );
  if (!isWhole) {
    await writeAtomically(file, `${fileBytes} bytes of adapters`, async (target) => {
      await using handle = await open(target, "r+");
      await handle.truncate(fileBytes);
      for (const { request, matrices } of placed) {
        if (signal?.aborted === true) throw new EngineError("aborted", "Preparing the adapters was aborted.");
        const { down, up } = joinedMatrices(adapters, request, matrices);
        for (const [tensor, values] of [[matrices.down, down] as const, [matrices.up, up] as const]) {
          const bytes = bytesOf(values, request);
          await handle.write(bytes, 0, bytes.byteLength, tensor.byteOffset);
        }
      }
    });
  }
  return new Map(placed.map(({ request, matrices }) => [request.name, matrices]));
}

function placeMatrices(
  adapters: readonly NamedAdapter[],
  request: AdapterRequest,
  file: string,
  firstByte: number,
): { readonly matrices: AdapterMatrices; readonly endByte: number } | null {
  const numLayers = changedLayers(adapters, request).length;
  if (numLayers === 0) return null;
  const numColumns = numLayers * adapters.reduce((sum, { rank }) => sum + rank, 0);
  const { name, layers, inFeatures, elementType } = request;
  let endByte = firstByte;
  const place = (part: "down" | "up", shape: readonly [number, number]): StoredTensor => {
    const byteOffset = Math.ceil(endByte / ALIGNMENT) * ALIGNMENT;
    const byteLength = shape[0] * shape[1] * bytesPerElement[elementType];
    endByte = byteOffset + byteLength;
    return { name: `${name}.adapters.${part}`, elementType, shape, file, byteOffset, byteLength };
  };
  const outFeatures = layers.reduce((sum, layer) => sum + layer.outFeatures, 0);
  const matrices = {
    down: place("down", [numColumns, inFeatures]),
    up: place("up", [numColumns, outFeatures]),
    numLayers,
  };
  return { matrices, endByte };
}

function changedLayers(adapters: readonly NamedAdapter[], { layers }: AdapterRequest): AdapterRequest["layers"] {
  return layers.filter(({ name }) => adapters.some(({ updates }) => updates.has(`${name}.weight`)));
}

function joinedMatrices(
  adapters: readonly NamedAdapter[],
  request: AdapterRequest,
  { down: { shape } }: AdapterMatrices,
): { readonly down: Float32Array; readonly up: Float32Array } {
  const { layers, inFeatures } = request;
  const [numColumns] = shape as readonly [number];
  const down = new Float32Array(numColumns * inFeatures);
  const outFeatures = layers.reduce((sum, layer) => sum + layer.outFeatures, 0);
  const up = new Float32Array(numColumns * outFeatures);
  const changed = changedLayers(adapters, request);
  let firstColumn = 0;
  let firstOutput = 0;
  for (const layer of layers) {
    if (changed.includes(layer)) {
      for (const { rank: numOwn, updates } of adapters) {
        const update = updates.get(`${layer.name}.weight`);
        if (update !== undefined) {
          const rank = rankOf(update);
          down.set(floatsOf(update.down), firstColumn * inFeatures);
          const values = floatsOf(update.up);
          for (let index = 0; index < rank; index++) {
            const first = (firstColumn + index) * outFeatures + firstOutput;
            for (let output = 0; output < layer.outFeatures; output++) {
              up[first + output] = values[output * rank + index]! * update.scale;
            }
          }
        }
        firstColumn += numOwn;
      }
    }
    firstOutput += layer.outFeatures;
  }
  return { down, up };
}

function floatsOf({ file, byteOffset, byteLength, elementType, name }: StoredTensor): Float32Array {
  if (!isFloat(elementType)) throw invalid(`Its tensor ${name} is of type ${elementType}.`);
  return toFloat32(readFilePart(file, byteOffset, byteLength), elementType);
}

function bytesOf(values: Float32Array, { name, elementType }: AdapterRequest): Uint8Array {
  const largest = elementType === "float16" ? LARGEST_FLOAT16 : Number.MAX_VALUE;
  if (!values.every((value) => Math.abs(value) <= largest)) {
    throw invalid(`An update of ${name} has values that ${elementType} cannot represent.`);
  }
  if (elementType === "float32") return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const halves = elementType === "float16" ? toFloat16(values) : toBfloat16(values);
  return new Uint8Array(halves.buffer, halves.byteOffset, halves.byteLength);
}

function invalid(reason: string): EngineError {
  return new EngineError("invalid_checkpoint", `The LoRA adapters do not fit. ${reason}`, { setting: "loraModules" });
}
