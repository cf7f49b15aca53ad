/**
 * Weights that the sessions of several threads share: mapped files, and what ONNX Runtime's kernels make of them when a
 * session is loaded. Without this, each session has packed weights of its own.
 */
import { closeSync, fstatSync, openSync } from "node:fs";
import { platform } from "node:os";
import koffi from "koffi";

import { EngineError } from "../contract/errors.ts";
import type { ExternalTensor } from "../weights/stored-tensor.ts";
import { elementTypeCode } from "./element-type.ts";
import type { Pointer } from "./ort-api.ts";
import { checkStatus, ortEnvironment } from "./ort-environment.ts";
import { toNativeShape } from "./tensor.ts";

/** What a session needs of a graph's shared weights. Plain data, valid in all threads until the owner's disposal. */
export interface SharedWeights {
  /** Of packed weights; the same for all graphs. */
  readonly container: Pointer;
  readonly initializers: readonly { readonly name: string; readonly value: Pointer }[];
}

interface FileCalls {
  readonly mmap: (
    address: null,
    numBytes: number,
    protection: number,
    flags: number,
    file: number,
    offset: number,
  ) => Pointer | null;
  readonly munmap: (address: Pointer, numBytes: number) => number;
  readonly madvise: (address: Pointer, numBytes: number, advice: number) => number;
}

const PROT_READ = 1;
const MAP_PRIVATE = 2;
const MADV_DONTNEED = 4;
const MAP_FAILED = 2n ** 64n - 1n;

/** Mutable. Owns what is shared: dispose of it after all sessions. */
export class WeightSharing implements Disposable {
  readonly #calls: FileCalls;
  readonly #container: Pointer;
  readonly #files = new Map<string, { readonly address: Pointer; readonly numBytes: number }>();
  readonly #owned: DisposableStack;

  private constructor(calls: FileCalls) {
    const { api, out } = ortEnvironment();
    this.#calls = calls;
    using owned = new DisposableStack();
    checkStatus(api, api.CreatePrepackedWeightsContainer(out));
    this.#container = owned.adopt(out[0]!, (container) => api.ReleasePrepackedWeightsContainer(container));
    this.#owned = owned.move();
  }

  /** Null where files cannot be mapped: on Windows. */
  static create(): WeightSharing | null {
    const calls = findFileCalls();
    return calls === null ? null : new WeightSharing(calls);
  }

  /**
   * Maps the files of a graph's weights. Graphs may have files in common.
   *
   * @throws EngineError `runtime_failed`, naming the file, if it cannot be mapped or ends before a weight does.
   */
  share(weights: readonly ExternalTensor[]): SharedWeights {
    const { api, hostMemory, out } = ortEnvironment();
    const initializers = weights.map(({ name, elementType, shape, file, byteOffset, byteLength }) => {
      const { address, numBytes } = this.#map(file);
      if (byteOffset + byteLength > numBytes) {
        throw new EngineError("runtime_failed", `${file} ends before the weight ${name} does. Was it changed?`);
      }
      const data = address + BigInt(byteOffset);
      const code = elementTypeCode(elementType);
      const nativeShape = toNativeShape(shape);
      checkStatus(
        api,
        api.CreateTensorWithDataAsOrtValue(hostMemory, data, byteLength, nativeShape, shape.length, code, out),
      );
      return { name, value: this.#owned.adopt(out[0]!, (value) => api.ReleaseValue(value)) };
    });
    return { container: this.#container, initializers };
  }

  /**
   * Leaves the files' pages to the system, which no session needs that has packed its weights. Those that are read again
   * come back.
   */
  releasePages(): void {
    for (const { address, numBytes } of this.#files.values()) this.#calls.madvise(address, numBytes, MADV_DONTNEED);
  }

  /** Disposing twice has no effect. */
  [Symbol.dispose](): void {
    this.#owned.dispose();
  }

  #map(file: string): { readonly address: Pointer; readonly numBytes: number } {
    const known = this.#files.get(file);
    if (known !== undefined) return known;
    const { mmap, munmap } = this.#calls;
    const { handle, numBytes } = openFile(file);
    try {
      const address = mmap(null, numBytes, PROT_READ, MAP_PRIVATE, handle, 0);
      if (address === null || address === MAP_FAILED) {
        throw new EngineError("runtime_failed", `The system does not map the ${numBytes} bytes of ${file}.`);
      }
      const mapped = { address, numBytes };
      this.#owned.defer(() => munmap(address, numBytes));
      this.#files.set(file, mapped);
      return mapped;
    } finally {
      closeSync(handle);
    }
  }
}

function openFile(file: string): { readonly handle: number; readonly numBytes: number } {
  try {
    const handle = openSync(file, "r");
    return { handle, numBytes: fstatSync(handle).size };
  } catch (cause) {
    throw new EngineError("runtime_failed", `The weights in ${file} cannot be read.`, { cause });
  }
}

function findFileCalls(): FileCalls | null {
  if (platform() === "win32") return null;
  const library = koffi.load(null);
  return {
    mmap: library.func("mmap", "void *", ["void *", "size_t", "int", "int", "int", "long"]),
    munmap: library.func("munmap", "int", ["void *", "size_t"]),
    madvise: library.func("madvise", "int", ["void *", "size_t", "int"]),
  };
}
