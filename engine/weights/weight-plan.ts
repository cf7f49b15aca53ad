/** Decides for each requested weight whether it is ready in the checkpoint, and where a converted one is stored. */
import { EngineError, invariant } from "../contract/errors.ts";
import { isFloat } from "./float-conversion.ts";
import type { WeightFormat, WeightRequest } from "./prepared-weights.ts";
import { bytesPerElement } from "./safetensors.ts";
import type { ElementType, StoredTensor } from "./stored-tensor.ts";

/** A cache line and the widest vector register: kernels read aligned data, and no two tensors share a line. */
const ALIGNMENT = 64;

/** Position of a tensor in the file of converted weights. */
export interface PlannedTensor {
  readonly elementType: ElementType;
  readonly shape: readonly number[];
  readonly byteOffset: number;
  readonly byteLength: number;
}

export type PlannedWeight =
  | { readonly kind: "in-place"; readonly request: WeightRequest; readonly source: StoredTensor }
  | {
      readonly kind: "made";
      readonly request: WeightRequest;
      /** Concatenated along axis 0. */
      readonly sources: readonly StoredTensor[];
      /** The row of a source at each position of a run of rows; null if they stay in order. */
      readonly rowOrder: Int32Array | null;
      readonly weight: PlannedTensor;
      readonly scales: PlannedTensor | null;
      readonly zeroPoints: PlannedTensor | null;
    };

export interface WeightPlan {
  readonly weights: readonly PlannedWeight[];
  /** Size of the file of converted weights; `dataOffset` if there are none. */
  readonly fileBytes: number;
}

/**
 * @param dataOffset First byte of the file that is available to tensors.
 * @throws EngineError `invalid_checkpoint` that names a tensor that is missing, has another shape or no float type.
 */
export function planWeights(
  tensors: ReadonlyMap<string, StoredTensor>,
  requests: readonly WeightRequest[],
  dataOffset: number,
): WeightPlan {
  let fileBytes = dataOffset;
  const place = (elementType: ElementType, shape: readonly number[]): PlannedTensor => {
    const byteOffset = Math.ceil(fileBytes / ALIGNMENT) * ALIGNMENT;
    const byteLength = countElements(shape) * bytesPerElement[elementType];
    fileBytes = byteOffset + byteLength;
    return { elementType, shape, byteOffset, byteLength };
  };
  const weights = requests.map((request): PlannedWeight => {
    const sources = findSources(tensors, request);
    const [source] = sources;
    if (source !== undefined && sources.length === 1 && liesReady(source, request.format)) {
      return { kind: "in-place", request, source };
    }
    const { weight, scales, zeroPoints } = preparedLayout(request);
    return {
      kind: "made",
      request,
      sources,
      rowOrder: findRowOrder(tensors, request),
      weight: place(weight.elementType, weight.shape),
      scales: scales && place("float32", scales),
      zeroPoints: zeroPoints && place("uint8", zeroPoints),
    };
  });
  return { weights, fileBytes };
}

function liesReady(tensor: StoredTensor, format: WeightFormat): boolean {
  const { elementType, byteOffset, quantised, columnStride, update } = tensor;
  if (quantised !== undefined || columnStride !== undefined || update !== undefined) return false;
  // Old writers did not pad the header, but kernels must not read floats from unaligned addresses.
  const isAligned = byteOffset % bytesPerElement[elementType] === 0;
  return format.kind === "plain" && format.elementType === elementType && isAligned;
}

export interface PreparedLayout {
  readonly weight: { readonly elementType: ElementType; readonly shape: readonly number[] };
  /** Shape of float32 scales; null without any. */
  readonly scales: readonly number[] | null;
  /** Shape of uint8 zero points; null without any. */
  readonly zeroPoints: readonly number[] | null;
}

/** Types and shapes of a request's tensors. */
export function preparedLayout({ name, shape, format }: WeightRequest): PreparedLayout {
  if (format.kind === "plain") {
    return { weight: { elementType: format.elementType, shape }, scales: null, zeroPoints: null };
  }
  invariant(shape.length === 2, `${name} is a matrix, because only matrices are quantised`);
  const [outputSize, inputSize] = shape as readonly [number, number];
  switch (format.kind) {
    case "blockwise":
    case "stored-blocks": {
      const { bits, blockSize } = format;
      invariant(blockSize >= 16 && Number.isInteger(Math.log2(blockSize)), `block size ${blockSize} is a power of two`);
      const numBlocks = Math.ceil(inputSize / blockSize);
      const hasZeroPoints = format.kind === "stored-blocks" && format.hasZeroPoints;
      return {
        weight: { elementType: "uint8", shape: [outputSize, numBlocks, (blockSize * bits) / 8] },
        scales: [outputSize * numBlocks],
        zeroPoints: hasZeroPoints ? [outputSize * Math.ceil((numBlocks * bits) / 8)] : null,
      };
    }
    case "per-channel-int8":
    case "stored-channels":
      return {
        weight: { elementType: "int8", shape: [inputSize, outputSize] },
        scales: [outputSize],
        zeroPoints: null,
      };
    default:
      return format satisfies never;
  }
}

function findSources(
  tensors: ReadonlyMap<string, StoredTensor>,
  { name, sources, shape, rows }: WeightRequest,
): readonly StoredTensor[] {
  invariant(sources.length > 0, `${name} has sources`);
  const whole = sources.map((source) => {
    const tensor = tensors.get(source);
    if (tensor === undefined)
      throw new EngineError(
        "invalid_checkpoint",
        `The checkpoint has no tensor ${source}, which config.json requires.`,
      );
    if (!isFloat(tensor.elementType) && tensor.quantised === undefined) {
      throw new EngineError(
        "invalid_checkpoint",
        `Tensor ${source} is stored as ${tensor.elementType}; expected float32, float16 or bfloat16.`,
      );
    }
    return tensor;
  });
  const found = rows === undefined ? whole : rows.map((row) => rowOf(whole[0]!, row));
  for (const tensor of found) {
    const fits =
      tensor.shape.length === shape.length && tensor.shape.slice(1).every((size, i) => size === shape[i + 1]);
    if (!fits || (found.length === 1 && tensor.shape[0] !== shape[0])) {
      throw new EngineError(
        "invalid_checkpoint",
        `Tensor ${tensor.name} has shape [${tensor.shape.join(", ")}]; config.json implies ` +
          `[${(found.length === 1 ? shape : ["...", ...shape.slice(1)]).join(", ")}].`,
      );
    }
  }
  const numRows = found.reduce((sum, tensor) => sum + (tensor.shape[0] ?? 0), 0);
  if (found.length > 1 && numRows !== shape[0]) {
    throw new EngineError(
      "invalid_checkpoint",
      `Tensors ${sources.join(", ")} have ${numRows} rows together; config.json implies ${shape[0]}.`,
    );
  }
  return found;
}

/** A matrix of one row. */
function rowOf(tensor: StoredTensor, row: number): StoredTensor {
  const { name, shape, elementType, byteOffset, quantised, columnStride, update } = tensor;
  if (quantised !== undefined || columnStride !== undefined || update !== undefined) {
    const how = update === undefined ? "stores it in another form" : "has an adapter that changes it";
    throw new EngineError(
      "unsupported_model",
      `Single rows of the tensor ${name} are needed as floats, but the checkpoint ${how}.`,
    );
  }
  const [numRows = 0, ...others] = shape;
  invariant(row < numRows, `${name} has a row ${row}`);
  const byteLength = countElements(others) * bytesPerElement[elementType];
  return { ...tensor, shape: [1, ...others], byteOffset: byteOffset + row * byteLength, byteLength };
}

function findRowOrder(
  tensors: ReadonlyMap<string, StoredTensor>,
  { name, shape, format, rowOrder }: WeightRequest,
): Int32Array | null {
  if (rowOrder === undefined) return null;
  invariant(format.kind === "stored-blocks", `the rows of ${name}, ${format.kind}, stay in order`);
  const matrix = tensors.get(rowOrder)?.quantised;
  invariant(matrix?.kind === "grouped" && matrix.columnOrder !== null, `the inputs of ${rowOrder} are not in order`);
  invariant(shape[0]! % matrix.columnOrder.length === 0, `${name} [${shape.join(", ")}] provides ${rowOrder}'s inputs`);
  return matrix.columnOrder;
}

export function countElements(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}
