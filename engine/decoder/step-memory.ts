/**
 * Memory for the small tensors of a step: one array on the host and, on a GPU, one allocation that mirrors it. All
 * inputs of a step then take one copy to the device, all outputs one copy back, and captured graphs find them at the
 * same addresses each time.
 */
import { bytesPerElement, numElements, typedArrayOver } from "../runtime/element-type.ts";
import type { TensorArrays, TensorElementType } from "../runtime/element-type.ts";
import type { Session } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";

/** Kernels of a GPU expect the alignment of an allocation. */
const ALIGNMENT_BYTES = 256;

export interface StepTensorLayout {
  readonly elementType: TensorElementType;
  readonly shape: readonly number[];
}

type Layouts = Readonly<Record<string, StepTensorLayout>>;

/** Tensors side by side. Regions overlap: filling one overwrites the others. */
export interface StepRegion<L extends Layouts> extends Disposable {
  /** Host arrays to fill or to read. */
  readonly arrays: { readonly [Name in keyof L]: TensorArrays[L[Name]["elementType"]] };
  /** The same memory as tensors for a run. */
  readonly tensors: { readonly [Name in keyof L]: Tensor };
  /** Copies all arrays to the device. Does nothing if the device uses the host's memory. */
  upload(): void;
  /** Copies all arrays from the device. */
  download(): void;
}

/** Bytes of a region with these tensors. */
export function regionBytes(layouts: Layouts): number {
  return Object.values(layouts).reduce((sum, layout) => sum + alignedBytes(layout), 0);
}

/** Owns the memory. Dispose of its regions first. */
export class StepMemory implements Disposable {
  readonly #host: ArrayBuffer;
  readonly #device: Tensor<"uint8"> | null;

  /** @param numBytes Size of the largest region. */
  constructor(session: Pick<Session, "allocateTensor" | "deviceMemory">, numBytes: number) {
    this.#host = new ArrayBuffer(numBytes);
    this.#device = session.deviceMemory === null ? null : session.allocateTensor("uint8", [numBytes]);
  }

  /** Equal layouts have equal addresses. */
  region<const L extends Layouts>(layouts: L): StepRegion<L> {
    using allocated = new DisposableStack();
    const arrays: Record<string, TensorArrays[TensorElementType]> = {};
    const tensors: Record<string, Tensor> = {};
    let byteOffset = 0;
    for (const [name, layout] of Object.entries(layouts)) {
      const { elementType, shape } = layout;
      const array = typedArrayOver(elementType, this.#host, byteOffset, numElements(shape));
      arrays[name] = array;
      tensors[name] = allocated.use(
        this.#device === null
          ? Tensor.fromTypedArray<TensorElementType>(elementType, array, shape)
          : this.#device.viewAs(elementType, byteOffset, shape),
      );
      byteOffset += alignedBytes(layout);
    }
    const device = this.#device === null ? null : allocated.use(this.#device.view(0, [byteOffset]));
    const bytes = new Uint8Array(this.#host, 0, byteOffset);
    const owned = allocated.move();
    return {
      arrays: arrays as StepRegion<L>["arrays"],
      tensors: tensors as StepRegion<L>["tensors"],
      upload: () => device?.copyFrom(bytes),
      download: () => device?.copyInto(bytes),
      [Symbol.dispose]: () => owned.dispose(),
    };
  }

  [Symbol.dispose](): void {
    this.#device?.[Symbol.dispose]();
  }
}

function alignedBytes({ elementType, shape }: StepTensorLayout): number {
  return Math.ceil((numElements(shape) * bytesPerElement(elementType)) / ALIGNMENT_BYTES) * ALIGNMENT_BYTES;
}
