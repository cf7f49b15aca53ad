/** Calls code that is not ours on the thread that serves HTTP, which must not wait for it for ever. */
import { Script } from "node:vm";

/** Where the script below finds what it is to call; V8 ends only what runs inside of a script that was given a timeout. */
const pendingCall = Symbol.for("fovea.pendingCall");
const script = new Script(`globalThis[Symbol.for(${JSON.stringify(pendingCall.description)})]()`);

/** What `callWithin` throws for a call that did not return. */
export class CallTimeout extends Error {
  override readonly name = "CallTimeout";
}

/**
 * Returns or throws what `call` does. A call that has not returned after `timeoutMs` is ended in the middle of what it
 * does, loops and regular expressions included, and CallTimeout thrown. It takes some 0.2 ms more than a plain call, since
 * Node starts a thread that watches the time. Work that `call` leaves for later is not watched.
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
