/** Logits processors answer at once: a step of the engine waits for nobody. */

/** Whether calling it gives a promise, as far as that can be known beforehand. */
export function isAsyncFunction(value: unknown): boolean {
  return Object.prototype.toString.call(value) === "[object AsyncFunction]";
}

/**
 * Refuses a promise. Its own rejection is caught: unhandled, it would end the thread.
 *
 * @throws TypeError that names the method.
 */
export function refusePromise(returned: unknown, method: string): void {
  if (!(returned instanceof Promise)) return;
  returned.catch(() => {});
  throw new TypeError(`${method} must not be asynchronous`);
}
