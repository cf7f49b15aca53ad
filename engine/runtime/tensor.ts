/** An `OrtValue` that is a tensor: over memory of the caller on the host, or in memory of a session's device. */
import { EngineError, invariant } from "../contract/errors.ts";
import { bytesPerElement, elementTypeCode, numElements } from "./element-type.ts";
import type { TensorArrays, TensorData, TensorElementType } from "./element-type.ts";
import { addressOf } from "./ort-api.ts";
import type { Pointer } from "./ort-api.ts";
import { checkStatus, ortEnvironment } from "./ort-environment.ts";

/** What a tensor in a device's memory needs of the session that allocated it. */
export interface TensorDevice {
  readToHost(tensor: Tensor): TensorData;
  write(tensor: Tensor, source: Tensor): void;
  viewOf<E extends TensorElementType>(tensor: Tensor<E>, byteOffset: number, shape: readonly number[]): Tensor<E>;
  /** Called once, when the tensor is disposed of. */
  forget(tensor: Tensor): void;
}

interface TensorParts<E extends TensorElementType> {
  readonly elementType: E;
  readonly shape: readonly number[];
  readonly value: Pointer;
  readonly memory: TensorArrays[E] | TensorDevice;
}

// The address under a tensor without elements: never read, but it may not be null.
const nothing = new Uint8Array(8);

// ONNX Runtime copies shapes, so one array serves every call of the thread.
const MAX_RANK = 16;
const shapeScratch = new BigInt64Array(MAX_RANK);

export class Tensor<E extends TensorElementType = TensorElementType> implements Disposable {
  readonly elementType: E;
  readonly shape: readonly number[];
  readonly #memory: TensorArrays[E] | TensorDevice;
  #value: Pointer | null;

  /** For sessions; everyone else calls `Tensor.fromTypedArray` or `Session.allocateTensor`. */
  constructor(parts: TensorParts<E>) {
    this.elementType = parts.elementType;
    this.shape = parts.shape;
    this.#memory = parts.memory;
    this.#value = parts.value;
  }

  /**
   * A view over `data`, not a copy: what is written to the array is what the next run reads, and the other way round.
   * The array stays referenced as long as the tensor or a binding of it does; it must not be transferred to another
   * thread meanwhile. Several tensors may lie over one buffer, also overlapping.
   *
   * @param shape Dimensions, row-major; [] is a scalar, a 0 among them a tensor without elements.
   * @throws EngineError `runtime_failed` when `data` does not have exactly the bytes of the shape.
   */
  static fromTypedArray<E extends TensorElementType>(
    elementType: E,
    data: TensorArrays[E],
    shape: readonly number[],
  ): Tensor<E> {
    const numBytes = checkedByteLength(elementType, shape);
    if (data.byteLength !== numBytes) {
      throw new EngineError(
        "runtime_failed",
        `A ${elementType} tensor of shape [${shape.join(", ")}] has ${numBytes} bytes; the array has ${data.byteLength}.`,
      );
    }
    const { api, hostMemory, out } = ortEnvironment();
    checkStatus(
      api,
      api.CreateTensorWithDataAsOrtValue(
        hostMemory,
        addressOf(numBytes === 0 ? nothing : data),
        numBytes,
        toNativeShape(shape),
        shape.length,
        elementTypeCode(elementType),
        out,
      ),
    );
    return new Tensor({ elementType, shape, value: out[0], memory: data });
  }

  get isOnDevice(): boolean {
    return !ArrayBuffer.isView(this.#memory);
  }

  /** The live array under a tensor on the host. */
  get data(): TensorArrays[E] {
    const memory = this.#memory;
    invariant(ArrayBuffer.isView(memory), "data of a tensor on a device is read with copyToHost()");
    invariant(this.#value !== null, "the tensor is used after its disposal");
    return memory;
  }

  get byteLength(): number {
    return numElements(this.shape) * bytesPerElement(this.elementType);
  }

  /** The native handle; for this folder only. */
  get value(): Pointer {
    invariant(this.#value !== null, "the tensor is used after its disposal");
    return this.#value;
  }

  /**
   * A tensor over a part of this one's memory, which must outlive it; on WebGPU only over the first elements. Kernels of
   * a GPU load up to 16 bytes at once and expect allocations at multiples of 256 bytes, so views on a device should
   * begin at such.
   *
   * @param firstElement Where the view begins in the flat elements of this tensor.
   * @throws EngineError `runtime_failed` when the view would reach beyond the tensor.
   */
  view(firstElement: number, shape: readonly number[]): Tensor<E> {
    const size = bytesPerElement(this.elementType);
    const endElement = firstElement + checkedByteLength(this.elementType, shape) / size;
    const length = numElements(this.shape);
    if (!Number.isInteger(firstElement) || firstElement < 0 || endElement > length) {
      throw new EngineError(
        "runtime_failed",
        `A view of elements ${firstElement} to ${endElement} is not within a tensor of ${length} elements.`,
      );
    }
    const memory = this.#memory;
    if (!ArrayBuffer.isView(memory)) return memory.viewOf(this, firstElement * size, shape);
    const part = this.data.subarray(firstElement, endElement) as TensorArrays[E];
    return Tensor.fromTypedArray(this.elementType, part, shape);
  }

  /** A copy of the elements; waits for the device. */
  copyToHost(): TensorArrays[E] {
    const memory = this.#memory;
    if (ArrayBuffer.isView(memory)) return this.data.slice() as TensorArrays[E];
    invariant(this.#value !== null, "the tensor is used after its disposal");
    return memory.readToHost(this) as TensorArrays[E];
  }

  /**
   * Overwrites all elements; waits for the device.
   *
   * @throws EngineError `runtime_failed` when `source` does not have exactly this tensor's bytes.
   */
  copyFrom(source: TensorArrays[E]): void {
    const memory = this.#memory;
    if (source.byteLength !== this.byteLength) {
      throw new EngineError(
        "runtime_failed",
        `A ${this.elementType} tensor of shape [${this.shape.join(", ")}] has ${this.byteLength} bytes; ` +
          `${source.byteLength} were given.`,
      );
    }
    if (ArrayBuffer.isView(memory)) {
      bytesOf(this.data).set(bytesOf(source));
      return;
    }
    using staged = Tensor.fromTypedArray(this.elementType, source, this.shape);
    memory.write(this, staged);
  }

  /** Bindings made before keep what they need; disposing twice does nothing. */
  [Symbol.dispose](): void {
    if (this.#value === null) return;
    ortEnvironment().api.ReleaseValue(this.#value);
    this.#value = null;
    if (!ArrayBuffer.isView(this.#memory)) this.#memory.forget(this);
  }
}

function bytesOf(data: TensorData): Uint8Array {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

/** @throws EngineError `runtime_failed` for a dimension that is not a whole number of at least 0. */
export function checkedByteLength(elementType: TensorElementType, shape: readonly number[]): number {
  const count = numElements(shape);
  if (
    shape.length > MAX_RANK ||
    !Number.isSafeInteger(count) ||
    !shape.every((size) => Number.isInteger(size) && size >= 0)
  ) {
    throw new EngineError("runtime_failed", `[${shape.join(", ")}] is not the shape of a tensor.`);
  }
  return count * bytesPerElement(elementType);
}

/** Valid until the next call. */
export function toNativeShape(shape: readonly number[]): BigInt64Array {
  for (let axis = 0; axis < shape.length; axis++) shapeScratch[axis] = BigInt(shape[axis]);
  return shapeScratch;
}
