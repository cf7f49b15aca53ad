/** An `OrtValue` that is a tensor: over the caller's memory on the host, or in the memory of a session's device. */
import { EngineError, invariant } from "../contract/errors.ts";
import { bytesPerElement, elementTypeCode, numElements, typedArrayOver } from "./element-type.ts";
import type { TensorArrays, TensorData, TensorElementType } from "./element-type.ts";
import { addressOf } from "./ort-api.ts";
import type { Pointer } from "./ort-api.ts";
import { checkStatus, ortEnvironment } from "./ort-environment.ts";

/** The operations that a tensor in a device's memory needs from its session. */
export interface TensorDevice {
  readInto(tensor: Tensor, target: Tensor): void;
  readBeside(tensor: Tensor, target: Tensor): Promise<void>;
  write(tensor: Tensor, source: Tensor): void;
  viewOf<E extends TensorElementType>(
    tensor: Tensor,
    elementType: E,
    byteOffset: number,
    shape: readonly number[],
  ): Tensor<E>;
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

  /** For sessions. All other code calls `Tensor.fromTypedArray` or `Session.allocateTensor`. */
  constructor(parts: TensorParts<E>) {
    this.elementType = parts.elementType;
    this.shape = parts.shape;
    this.#memory = parts.memory;
    this.#value = parts.value;
  }

  /**
   * A view over `data`, not a copy: the next run reads what is written to the array, and vice versa. The array stays
   * referenced as long as the tensor or a binding of it, and must not be transferred to another thread meanwhile.
   * Several tensors may share one buffer and overlap.
   *
   * @param shape Dimensions, row-major; [] is a scalar, and a 0 among them means a tensor without elements.
   * @throws EngineError `runtime_failed` if `data` does not have exactly the bytes of the shape.
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
    return new Tensor({ elementType, shape, value: out[0]!, memory: data });
  }

  get isOnDevice(): boolean {
    return !ArrayBuffer.isView(this.#memory);
  }

  /** The live array of a tensor on the host. */
  get data(): TensorArrays[E] {
    const memory = this.#memory;
    invariant(ArrayBuffer.isView(memory), "data of a tensor on a device is read with copyToHost()");
    invariant(this.#value !== null, "the tensor is used after its disposal");
    return memory;
  }

  get byteLength(): number {
    return numElements(this.shape) * bytesPerElement(this.elementType);
  }

  /** The native handle, only for this folder. */
  get value(): Pointer {
    invariant(this.#value !== null, "the tensor is used after its disposal");
    return this.#value;
  }

  /**
   * A tensor over a part of this one's memory, which must outlive it; on WebGPU only over the first elements. Kernels of
   * a GPU load up to 16 bytes at once and expect allocations at multiples of 256 bytes, so views on a device should
   * start at such multiples.
   *
   * @param firstElement Index of the view's first element in the flat elements of this tensor.
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
    if (!ArrayBuffer.isView(memory)) return memory.viewOf(this, this.elementType, firstElement * size, shape);
    const part = this.data.subarray(firstElement, endElement) as TensorArrays[E];
    return Tensor.fromTypedArray(this.elementType, part, shape);
  }

  /**
   * A tensor of any element type over bytes of this one's memory, which must outlive it; see `view`.
   *
   * @throws EngineError `runtime_failed` when the bytes would reach beyond the tensor.
   */
  viewAs<T extends TensorElementType>(elementType: T, byteOffset: number, shape: readonly number[]): Tensor<T> {
    const endByte = byteOffset + checkedByteLength(elementType, shape);
    if (!Number.isInteger(byteOffset) || byteOffset < 0 || endByte > this.byteLength) {
      throw new EngineError(
        "runtime_failed",
        `A view of bytes ${byteOffset} to ${endByte} is not within a tensor of ${this.byteLength} bytes.`,
      );
    }
    const memory = this.#memory;
    if (!ArrayBuffer.isView(memory)) return memory.viewOf(this, elementType, byteOffset, shape);
    const { buffer, byteOffset: start } = memory;
    const part = typedArrayOver(elementType, buffer, start + byteOffset, numElements(shape));
    return Tensor.fromTypedArray(elementType, part, shape);
  }

  /** A copy of the elements; waits for the device. */
  copyToHost(): TensorArrays[E] {
    const copy = typedArrayOver(this.elementType, new ArrayBuffer(this.byteLength));
    this.copyInto(copy);
    return copy;
  }

  /**
   * Copies the elements into `target`; waits for the device.
   *
   * @throws EngineError `runtime_failed` when `target` does not have exactly this tensor's bytes.
   */
  copyInto(target: TensorArrays[E]): void {
    const memory = this.#memory;
    invariant(this.#value !== null, "the tensor is used after its disposal");
    if (!ArrayBuffer.isView(memory)) {
      using host = Tensor.fromTypedArray(this.elementType, target, this.shape);
      return memory.readInto(this, host);
    }
    if (target.byteLength !== this.byteLength) throw this.#wrongSize(target);
    bytesOf(target).set(bytesOf(this.data));
  }

  /**
   * As `copyInto`, but a copy from a device is made by another thread, so that the caller can go on. Nothing may write to
   * the tensor or dispose of it before the promise settles, and no CUDA graph may be captured: any copy breaks a capture.
   */
  async copyIntoBeside(target: TensorArrays[E]): Promise<void> {
    const memory = this.#memory;
    if (ArrayBuffer.isView(memory)) return this.copyInto(target);
    invariant(this.#value !== null, "the tensor is used after its disposal");
    using host = Tensor.fromTypedArray(this.elementType, target, this.shape);
    await memory.readBeside(this, host);
  }

  /**
   * Overwrites all elements; waits for the device.
   *
   * @throws EngineError `runtime_failed` if `source` does not have exactly this tensor's bytes.
   */
  copyFrom(source: TensorArrays[E]): void {
    const memory = this.#memory;
    if (source.byteLength !== this.byteLength) throw this.#wrongSize(source);
    if (ArrayBuffer.isView(memory)) {
      bytesOf(this.data).set(bytesOf(source));
      return;
    }
    using staged = Tensor.fromTypedArray(this.elementType, source, this.shape);
    memory.write(this, staged);
  }

  /**
   * Overwrites all elements with those of a tensor in the memory of the same device; waits for the device.
   *
   * @throws EngineError `runtime_failed` if `source` does not have exactly this tensor's bytes.
   */
  copyFromTensor(source: Tensor<E>): void {
    if (source.byteLength !== this.byteLength) throw this.#wrongSize(source);
    const memory = this.#memory;
    if (ArrayBuffer.isView(memory)) bytesOf(this.data).set(bytesOf(source.data));
    else memory.write(this, source);
  }

  #wrongSize({ byteLength }: { readonly byteLength: number }): EngineError {
    const shape = `[${this.shape.join(", ")}]`;
    return new EngineError(
      "runtime_failed",
      `A ${this.elementType} tensor of shape ${shape} has ${this.byteLength} bytes; ${byteLength} were given.`,
    );
  }

  /** Earlier bindings keep what they need. Disposing twice has no effect. */
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
  for (let axis = 0; axis < shape.length; axis++) shapeScratch[axis] = BigInt(shape[axis]!);
  return shapeScratch;
}
