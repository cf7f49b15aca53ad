/** A call that waits for a job at a queue and cannot be cancelled. The next caller gets the result of an abandoned call. */

export const aborted = Symbol("aborted");

/** Mutable. At most one call is under way. */
export class WaitingCall<Value> {
  readonly #start: () => Promise<Value>;
  #underWay: Promise<Value> | null = null;

  constructor(start: () => Promise<Value>) {
    this.#start = start;
  }

  /** Resolves to the result of the call under way or of a new one, or to `aborted`, which leaves the call under way. */
  async wait(signal: AbortSignal): Promise<Value | typeof aborted> {
    const call = (this.#underWay ??= this.#start());
    const { promise, resolve } = Promise.withResolvers<typeof aborted>();
    const onAbort = (): void => resolve(aborted);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    try {
      const result = await Promise.race([call, promise]);
      if (result !== aborted) this.#underWay = null;
      return result;
    } catch (error) {
      this.#underWay = null;
      throw error;
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** The result of an abandoned call. Undefined if there is none, or if it failed. */
  async rest(): Promise<Value | undefined> {
    return (await this.#underWay?.catch(() => {})) ?? undefined;
  }
}
