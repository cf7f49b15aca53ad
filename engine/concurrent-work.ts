/** Waits for concurrent work: until a signal ends the wait, or for all of it or none. */

/**
 * For work that cannot be stopped: rejects with the reason of `signal` at once when it aborts. The work goes on, and its
 * outcome is ignored.
 */
export async function untilAborted<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = (): void => aborted.reject(signal.reason);
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) onAbort();
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/**
 * For work that is useful only as a whole: returns results in the order of `inputs`. Rejects with the first failure, which
 * cancels the others; they have ended by then.
 */
export async function allOrNone<Input, Result>(
  inputs: readonly Input[],
  run: (input: Input, signal: AbortSignal, index: number) => Promise<Result>,
  signal: AbortSignal,
): Promise<readonly Result[]> {
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  const running = inputs.map(async (input, index) => {
    try {
      return await run(input, either, index);
    } catch (error) {
      failed.abort(error);
      throw error;
    }
  });
  await Promise.allSettled(running);
  if (failed.signal.aborted) throw failed.signal.reason;
  return Promise.all(running);
}
