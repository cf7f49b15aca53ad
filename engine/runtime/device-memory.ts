/** Tensors in the memory of a session's device. They stay there between runs. */
import type { DeviceName } from "../contract/config.ts";
import { invariant } from "../contract/errors.ts";
import { elementTypeCode } from "./element-type.ts";
import type { TensorElementType } from "./element-type.ts";
import { deviceHasViews, enableCopies } from "./execution-provider.ts";
import { readTypeAndShape } from "./native-tensor.ts";
import type { Pointer, Status } from "./ort-api.ts";
import { checkStatus, createMemoryInfo, ortEnvironment } from "./ort-environment.ts";
import { checkedByteLength, Tensor, toNativeShape } from "./tensor.ts";

export class DeviceMemory implements Disposable {
  /** Native description of the memory. */
  readonly memoryInfo: Pointer;
  readonly #allocator: Pointer;
  // Disposed of with the memory. Otherwise native code would free them on a device that no longer exists.
  readonly #tensors = new Set<Tensor>();
  readonly device: DeviceName;
  #isDisposed = false;

  /** @param memoryName The name that the device's execution provider uses. */
  constructor(session: Pointer, device: DeviceName, memoryName: string, deviceId: number) {
    const { api, out } = ortEnvironment();
    this.device = device;
    this.memoryInfo = createMemoryInfo(memoryName, deviceId);
    try {
      checkStatus(api, api.CreateAllocator(session, this.memoryInfo, out));
      this.#allocator = out[0]!;
    } catch (error) {
      api.ReleaseMemoryInfo(this.memoryInfo);
      throw error;
    }
  }

  /** A tensor of undefined contents. */
  allocate<E extends TensorElementType>(elementType: E, shape: readonly number[]): Tensor<E> {
    checkedByteLength(elementType, shape);
    const { api, out } = ortEnvironment();
    checkStatus(
      api,
      api.CreateTensorAsOrtValue(
        this.#allocator,
        toNativeShape(shape),
        shape.length,
        elementTypeCode(elementType),
        out,
      ),
    );
    return this.#keep(new Tensor({ elementType, shape, value: out[0]!, memory: this }));
  }

  /** Whether `viewOf` works at every offset. Where tensors are handles of buffers, views begin at the first element. */
  get hasViews(): boolean {
    return deviceHasViews(this.device);
  }

  /** See `Tensor.view`. ONNX Runtime takes any address, so the bounds are checked before. */
  viewOf<E extends TensorElementType>(
    tensor: Tensor,
    elementType: E,
    byteOffset: number,
    shape: readonly number[],
  ): Tensor<E> {
    invariant(this.hasViews || byteOffset === 0, `a view in memory of ${this.device} begins within a tensor`);
    const { api, out } = ortEnvironment();
    checkStatus(api, api.GetTensorMutableData(tensor.value, out));
    const address = out[0]! + BigInt(byteOffset);
    checkStatus(
      api,
      api.CreateTensorWithDataAsOrtValue(
        this.memoryInfo,
        address,
        checkedByteLength(elementType, shape),
        toNativeShape(shape),
        shape.length,
        elementTypeCode(elementType),
        out,
      ),
    );
    return this.#keep(new Tensor({ elementType, shape, value: out[0]!, memory: this }));
  }

  /** Takes ownership of a value that ONNX Runtime allocated in this memory. */
  adopt(value: Pointer): Tensor {
    return this.#keep(new Tensor({ ...readTypeAndShape(value), value, memory: this }));
  }

  readInto(tensor: Tensor, target: Tensor): void {
    this.#copy(tensor, target);
  }

  /** See `Tensor.copyIntoBeside`. */
  async readBeside(tensor: Tensor, target: Tensor): Promise<void> {
    enableCopies(this.device);
    const { api, env } = ortEnvironment();
    const sources = BigUint64Array.of(tensor.value);
    const targets = BigUint64Array.of(target.value);
    // Native code must not see the moving heap, where V8 keeps small arrays.
    void [sources.buffer, targets.buffer];
    const { promise, resolve, reject } = Promise.withResolvers<Status>();
    api.CopyTensors.async(env, sources, targets, null, 1, (error, result) => {
      if (error === null) resolve(result);
      else reject(error);
    });
    checkStatus(api, await promise);
  }

  write(tensor: Tensor, source: Tensor): void {
    this.#copy(source, tensor);
  }

  forget(tensor: Tensor): void {
    this.#tensors.delete(tensor);
  }

  [Symbol.dispose](): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    for (const tensor of this.#tensors) tensor[Symbol.dispose]();
    const { api } = ortEnvironment();
    api.ReleaseAllocator(this.#allocator);
    api.ReleaseMemoryInfo(this.memoryInfo);
  }

  #keep<T extends Tensor>(tensor: T): T {
    this.#tensors.add(tensor);
    return tensor;
  }

  #copy(source: Tensor, target: Tensor): void {
    if (source.byteLength === 0) return;
    enableCopies(this.device);
    const { api, env } = ortEnvironment();
    const sources = BigUint64Array.of(source.value);
    const targets = BigUint64Array.of(target.value);
    checkStatus(api, api.CopyTensors(env, sources, targets, null, 1));
  }
}
