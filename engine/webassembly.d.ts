/** The parts of the WebAssembly namespace that are used here: TypeScript declares it only in the DOM library. */
declare namespace WebAssembly {
  /** Compiled code. */
  class Module {
    constructor(bytes: Uint8Array);
    readonly [Symbol.toStringTag]: "WebAssembly.Module";
  }
  class Memory {
    /** Replaced by each `grow`; the old buffer is then empty. */
    readonly buffer: ArrayBuffer;
    /** Throws RangeError if no more memory is available. @param numPages Pages of 65,536 bytes. */
    grow(numPages: number): number;
  }
  class Instance {
    constructor(module: Module, imports?: object);
    readonly exports: unknown;
  }
  class RuntimeError extends Error {}
}
