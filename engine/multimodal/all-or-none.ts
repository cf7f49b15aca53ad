/** Things done at once that are of use only together. */

/**
 * Results in the order of `inputs`. The first failure is what this rejects with; it cancels the others, which have
 * ended by then.
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
