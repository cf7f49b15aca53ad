/** Bounds what is under way together. */

/** Mutable. Who asks first enters first. */
export class WorkWindow {
  readonly maxWeight: number;
  #weight = 0;
  #numInside = 0;
  #numEntering = 0;
  #lastEntered = Promise.resolve();
  #left = Promise.withResolvers<void>();

  constructor(maxWeight: number) {
    this.maxWeight = maxWeight;
  }

  /** Resolves when there is room; for `maxWeight` and more that is when nothing else is inside. */
  async enter(weight: number): Promise<void> {
    const before = this.#lastEntered;
    const entered = Promise.withResolvers<void>();
    this.#lastEntered = entered.promise;
    this.#numEntering += 1;
    await before;
    while (this.#numInside > 0 && this.#weight + weight > this.maxWeight) await this.#left.promise;
    this.#weight += weight;
    this.#numInside += 1;
    this.#numEntering -= 1;
    entered.resolve();
  }

  leave(weight: number): void {
    this.#weight -= weight;
    this.#numInside -= 1;
    this.#left.resolve();
    this.#left = Promise.withResolvers();
  }

  /** Resolves when nothing is inside, nor waits to enter. */
  async whenEmpty(): Promise<void> {
    while (this.#numInside + this.#numEntering > 0) await this.#left.promise;
  }
}
