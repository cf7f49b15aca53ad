/** Divides the event loop's turns among texts that are encoded at the same time. */

interface Waiting {
  readonly cost: number;
  readonly start: () => void;
}

/**
 * The texts of hundreds of requests, or the prompts of one, are encoded at once. If each had a piece in every turn of the
 * event loop, a turn would take seconds. Pieces therefore share the turns, in order of arrival. Mutable.
 */
export class SharedTurns {
  readonly #costPerTurn: number;
  readonly #waiting: Waiting[] = [];
  /** Of the pieces in this turn. */
  #spent = 0;
  #isScheduled = false;

  /** @param costPerTurn The pieces of a turn cost up to this together; a piece that costs more is alone. */
  constructor(costPerTurn: number) {
    this.#costPerTurn = costPerTurn;
  }

  /** Resolves when a piece of this cost may be processed. Rejects with the signal's reason when aborted. */
  async take(cost: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (this.#waiting.length === 0 && this.#hasRoom(cost)) {
      this.#spend(cost);
      return;
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push({ cost, start: resolve });
    await promise;
    signal?.throwIfAborted();
  }

  #hasRoom(cost: number): boolean {
    return this.#spent === 0 || this.#spent + cost <= this.#costPerTurn;
  }

  #spend(cost: number): void {
    this.#spent += cost;
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => this.#beginTurn());
  }

  #beginTurn(): void {
    this.#isScheduled = false;
    this.#spent = 0;
    for (let next = this.#waiting[0]; next !== undefined && this.#hasRoom(next.cost); next = this.#waiting[0]) {
      this.#waiting.shift();
      this.#spend(next.cost);
      next.start();
    }
  }
}
