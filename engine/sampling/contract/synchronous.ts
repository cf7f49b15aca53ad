/** Logits processors are synchronous: an engine step does not wait for promises. */

/** Whether a call returns a promise, as far as the function itself shows. */
export function isAsyncFunction(value: unknown): boolean {
  return Object.prototype.toString.call(value) === "[object AsyncFunction]";
}

/**
 * Rejects a promise. Its own rejection is handled, because an unhandled one would end the thread.
 *
 * @throws TypeError that names the method.
 */
export function refusePromise(returned: unknown, method: string): void {
  if (!(returned instanceof Promise)) return;
  returned.catch(() => {});
  throw new TypeError(`${method} must not be asynchronous`);
}
