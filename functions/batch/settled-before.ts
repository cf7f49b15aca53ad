/** Waiting that a signal ends. */

/** Whether the promise resolves before the signal is aborted. Leaves nothing on the signal. Rejects with the promise. */
export async function settledBefore(signal: AbortSignal, promise: Promise<unknown>): Promise<boolean> {
  const { promise: decided, resolve, reject } = Promise.withResolvers<boolean>();
  const stop = (): void => resolve(false);
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  promise.then(() => resolve(true), reject);
  try {
    return await decided;
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
