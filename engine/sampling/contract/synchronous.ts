/** Logits processors answer at once: a step of the engine waits for nobody. */

/** Whether calling it gives a promise, as far as that can be known beforehand. */
export function isAsyncFunction(value: unknown): boolean {
  return Object.prototype.toString.call(value) === "[object AsyncFunction]";
}

/** Throws TypeError for a promise. Its own failure, for which nobody waits, would end the thread, so it is caught. */
export function refusePromise(returned: unknown, method: string): void {
  if (!(returned instanceof Promise)) return;
  returned.catch(() => {});
  throw new TypeError(`${method} must not be asynchronous`);
}
