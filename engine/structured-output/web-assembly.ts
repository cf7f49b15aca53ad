/** The part of WebAssembly that is used here: TypeScript declares it together with the browser's world only. */

export interface WebAssemblyMemory {
  /** A new one after every growth; the old one is then empty. */
  readonly buffer: ArrayBuffer;
  grow(numPages: number): number;
}

export interface WebAssemblyInstance {
  readonly exports: Readonly<Record<string, unknown>>;
}

/** Compiled code. */
export type WebAssemblyModule = object;

interface WebAssemblyNamespace {
  readonly RuntimeError: typeof Error;
  readonly Memory: new (descriptor: { readonly initial: number }) => WebAssemblyMemory;
  readonly Module: new (code: Uint8Array) => WebAssemblyModule;
  readonly Instance: new (module: WebAssemblyModule, imports: object) => WebAssemblyInstance;
}

export const webAssembly = (globalThis as unknown as { readonly WebAssembly: WebAssemblyNamespace }).WebAssembly;
