/** Counts the work that a structured output costs, so that none stops the engine. */

/**
 * A unit is a node of the vocabulary's trie that a mask looks at, which takes 5 to 10 ns; other work is counted in
 * multiples of it.
 */
export class WorkMeter {
  #numLeft = 0;
  #numSpent = 0;

  /** All units since the meter was created. */
  get numSpent(): number {
    return this.#numSpent;
  }

  /** What may be spent from now on. */
  allow(numUnits: number): void {
    this.#numLeft = numUnits;
  }

  /** The result of `work`; null when it takes more than `maxUnits`. Throws TooMuchWork when no more units are left. */
  attempt<Result>(maxUnits: number, work: () => Result): Result | null {
    const numAside = Math.max(0, this.#numLeft - maxUnits);
    this.#numLeft -= numAside;
    try {
      return work();
    } catch (error) {
      if (!(error instanceof TooMuchWork) || numAside === 0) throw error;
      return null;
    } finally {
      this.#numLeft += numAside;
    }
  }

  /** Throws TooMuchWork when it is more than what is allowed. */
  spend(numUnits: number): void {
    this.#numSpent += numUnits;
    this.#numLeft -= numUnits;
    if (this.#numLeft < 0) throw new TooMuchWork();
  }
}

/** The work is incomplete; caches hold only complete entries. */
export class TooMuchWork extends Error {}
