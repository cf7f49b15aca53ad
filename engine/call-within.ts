/** Calls foreign code with a time limit on the thread that serves HTTP. */
import { Script } from "node:vm";

/** Where the script below finds the function: V8 can only end code that runs inside a script with a timeout. */
const pendingCall = Symbol.for("fovea.pendingCall");
const script = new Script(`globalThis[Symbol.for(${JSON.stringify(pendingCall.description)})]()`);

/** Thrown by `callWithin` for a call that did not return. */
export class CallTimeout extends Error {
  override readonly name = "CallTimeout";
}

/**
 * Returns or throws what `call` returns or throws. A call that has not returned after `timeoutMs` is interrupted, even
 * in a loop or regular expression, and CallTimeout is thrown. It takes about 0.2 ms more than a plain call, because
 * Node starts a thread for the timeout. Work that `call` schedules for later is not limited.
 */
export function callWithin<Value>(timeoutMs: number, call: () => Value): Value {
  let value: Value | undefined;
  Reflect.set(globalThis, pendingCall, () => (value = call()));
  try {
    script.runInThisContext({ timeout: timeoutMs });
  } catch (error) {
    if (!isTimeout(error)) throw error;
    throw new CallTimeout(`did not return within ${timeoutMs} ms`, { cause: error });
  } finally {
    Reflect.deleteProperty(globalThis, pendingCall);
  }
  return value as Value;
}

function isTimeout(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ERR_SCRIPT_EXECUTION_TIMEOUT";
}
