/** The one way in which a command ends the process, except for `killItself`. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/**
 * Ends the process at once. Node 24 then waits for V8's compiler threads, and one of them that waits until this thread
 * has collected garbage would wait forever, so garbage is collected first.
 */
export function exitProcess(code: number): never {
  setFlagsFromString("--expose-gc");
  // Only a new context has the function.
  (runInNewContext("gc") as () => void)();
  process.exit(code);
}
