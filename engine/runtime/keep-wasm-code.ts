/** Works around a defect of V8 that ends the process: a race between threads that run WebAssembly. */
import { setFlagsFromString } from "node:v8";

/**
 * Applies to the whole process; call it before the first thread starts. V8 then keeps WebAssembly machine code until
 * its module is gone. Idempotent.
 *
 * The code with which WebAssembly calls a JavaScript function exists once per process for all functions with similar
 * parameters. V8 13.6 in Node 24 lets a thread look up such code and reference it while another thread is about to free
 * it; the first thread then frees it again. The process ends with a segmentation fault or a failed check in V8. Node's
 * type stripper in any two threads can trigger it. V8 has since fixed this ("[wasm] Fix lookup of wrappers marked
 * is_dying"); this workaround can be removed when Node 24 contains the fix.
 *
 * It costs less than 1 KB for each kind of call that only ended threads had used; for the life of a module, the first
 * code of functions that were then optimised: 300 KB for the type stripper; and 3 ms at each start of a thread, which
 * uses Node's own modules in compiled form only if V8's flags are those with which they were compiled.
 */
export function keepWasmCode(): void {
  setFlagsFromString("--no-wasm-code-gc");
}
