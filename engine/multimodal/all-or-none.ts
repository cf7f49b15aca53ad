/** Concurrent work that is useful only as a whole. */

/**
 * Returns results in the order of `inputs`. Rejects with the first failure, which cancels the others; they have ended
 * by then.
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
