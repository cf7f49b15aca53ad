/** Counts the work of structured outputs, so that none of them stops the engine. */

/**
 * A unit is one visit of a node in the vocabulary's trie, which takes 5 to 10 ns. Other work is counted in multiples of
 * it.
 */
export class WorkMeter {
  #numLeft = 0;
  #numSpent = 0;

  /** All units since the meter was created. */
  get numSpent(): number {
    return this.#numSpent;
  }

  /** Sets the number of units that may be spent from now on. */
  allow(numUnits: number): void {
    this.#numLeft = numUnits;
  }

  /**
   * Returns the result of `work`, or null if it takes more than `maxUnits`. Throws TooMuchWork if no units are left at
   * all.
   */
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

  /** Throws TooMuchWork if this exceeds the allowance. */
  spend(numUnits: number): void {
    this.#numSpent += numUnits;
    this.#numLeft -= numUnits;
    if (this.#numLeft < 0) throw new TooMuchWork();
  }
}

/** The work is incomplete. Caches contain only complete entries. */
export class TooMuchWork extends Error {}
