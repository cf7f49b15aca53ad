/** What is used of the WebAssembly namespace: without the library of the web, TypeScript knows none of it. */
declare namespace WebAssembly {
  /** Compiled code. */
  class Module {
    constructor(bytes: Uint8Array);
    readonly [Symbol.toStringTag]: "WebAssembly.Module";
  }
  class Memory {
    /** Another one after each `grow`; the old one is then empty. */
    readonly buffer: ArrayBuffer;
    /** Throws RangeError where there is no more to have. @param numPages Of 65,536 bytes. */
    grow(numPages: number): number;
  }
  class Instance {
    constructor(module: Module, imports?: object);
    readonly exports: unknown;
  }
  class RuntimeError extends Error {}
}
