/** Keeps a defect of V8 from ending the process: a race between threads that run WebAssembly. */
import { setFlagsFromString } from "node:v8";

/**
 * For the whole process, to be called before the first thread is started: V8 collects no machine code of WebAssembly any
 * more until the module it belongs to is gone. Idempotent.
 *
 * The code by which WebAssembly calls a JavaScript function exists once per process for all functions of like
 * parameters. V8 13.6, that of Node 24, lets a thread look such code up, and take a reference to it, while another
 * thread is about to free it; the first then frees it again. The process ends by a segmentation fault, or by a failed
 * check of V8's. Node's type stripper in any two threads can set it off. V8 has corrected it since ("[wasm] Fix lookup
 * of wrappers marked is_dying"); this can go when Node 24 has that.
 *
 * Costs less than 1 KB for each way of calling that only ended threads had used; for as long as a module lives, the
 * first code of functions that were then optimised: 300 KB for the type stripper; and 3 ms at each start of a thread,
 * which takes Node's own modules as compiled only where V8's flags are those they were compiled with.
 */
export function keepWasmCode(): void {
  setFlagsFromString("--no-wasm-code-gc");
}
