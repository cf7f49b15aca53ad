/** An `OrtValue` that is a tensor: over the caller's memory on the host, or in the memory of a session's device. */
import { EngineError, invariant } from "../contract/errors.ts";
import { bytesPerElement, elementTypeCode, numElements } from "./element-type.ts";
import type { TensorArrays, TensorData, TensorElementType } from "./element-type.ts";
import { addressOf } from "./ort-api.ts";
import type { Pointer } from "./ort-api.ts";
import { checkStatus, ortEnvironment } from "./ort-environment.ts";

/** The operations that a tensor in a device's memory needs from its session. */
export interface TensorDevice {
  readToHost(tensor: Tensor): TensorData;
  write(tensor: Tensor, source: Tensor): void;
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
const maxRank = 16;
const shapeScratch = new BigInt64Array(maxRank);

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
    return new Tensor({ elementType, shape, value: out[0], memory: data });
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
   * @throws EngineError `runtime_failed` if `source` does not have exactly this tensor's bytes.
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
    shape.length > maxRank ||
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
