/** Calls foreign code with a time limit on the thread that serves HTTP. */
import process from "node:process";
import { Script } from "node:vm";

/** Where the script below finds the function: V8 can only end code that runs inside a script with a timeout. */
const pendingCall = Symbol.for("fovea.pendingCall");
const script = new Script(`globalThis[Symbol.for(${JSON.stringify(pendingCall.description)})]()`);

/** Thrown by `callWithin` for a call that did not return. */
export class CallTimeout extends Error {
  override readonly name = "CallTimeout";
}

/** Attempts wait 1, 2, 4 and 8 times as long. A machine that is still too busy for the call cannot serve anyway. */
const MAX_ATTEMPTS = 4;
/** A call that had this share of the time in processor time has spent it itself. */
const OWN_SHARE = 0.5;

/**
 * Returns or throws what `call` returns or throws. A call that has not returned after `timeoutMs` is interrupted, even
 * in a loop or regular expression, and CallTimeout is thrown. It takes about 0.2 ms more than a plain call, because
 * Node starts a thread for the timeout. Work that `call` schedules for later is not limited.
 *
 * Only the clock can interrupt a call. On a busy machine, a call may be interrupted that has hardly run: it is then
 * repeated with more time, so it must have no effects.
 */
export function callWithin<Value>(timeoutMs: number, call: () => Value): Value {
  for (let attempt = 1, waitMs = timeoutMs; ; attempt++, waitMs *= 2) {
    const start = process.threadCpuUsage();
    try {
      return callOnce(waitMs, call);
    } catch (error) {
      if (!isTimeout(error)) throw error;
      const { user, system } = process.threadCpuUsage(start);
      if (attempt < MAX_ATTEMPTS && (user + system) / 1000 < OWN_SHARE * timeoutMs) continue;
      throw new CallTimeout(`did not return within ${timeoutMs} ms`, { cause: error });
    }
  }
}

function callOnce<Value>(timeoutMs: number, call: () => Value): Value {
  let value: Value | undefined;
  Reflect.set(globalThis, pendingCall, () => (value = call()));
  try {
    script.runInThisContext({ timeout: timeoutMs });
  } finally {
    Reflect.deleteProperty(globalThis, pendingCall);
  }
  return value as Value;
}

function isTimeout(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ERR_SCRIPT_EXECUTION_TIMEOUT";
}
