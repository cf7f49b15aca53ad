/** Limits the work in progress. */

export interface WorkWindowOptions {
  /** The part of `maxWeight` that others leave free now. Default: all of it. */
  readonly room?: () => number;
  /** Resolves when `room` may have grown, and when others have left. Default: never. */
  readonly whenRoomChanges?: () => Promise<void>;
  /** Whether others use the engine, however little of it. Default: whether they leave less than `maxWeight` free. */
  readonly hasOthers?: () => boolean;
}

/** Mutable. Enters in the order of calls. */
export class WorkWindow {
  readonly maxWeight: number;
  readonly #room: () => number;
  readonly #whenRoomChanges: (() => Promise<void>) | null;
  readonly #hasOthers: () => boolean;
  #weight = 0;
  #numInside = 0;
  #lastEntered = Promise.resolve();
  #left = Promise.withResolvers<void>();

  constructor(maxWeight: number, options: WorkWindowOptions = {}) {
    const { room = () => maxWeight, whenRoomChanges } = options;
    this.maxWeight = maxWeight;
    this.#room = room;
    this.#hasOthers = options.hasOthers ?? (() => room() < maxWeight);
    this.#whenRoomChanges = whenRoomChanges ?? null;
  }

  /** Whether work outside of the window uses the engine, and so may be why it rejects work within. */
  get hasOthers(): boolean {
    return this.#hasOthers();
  }

  /** Weight that can enter now; negative if others have taken room since. */
  get free(): number {
    return Math.min(this.maxWeight, this.#room()) - this.#weight;
  }

  /** Weight that is inside. */
  get weight(): number {
    return this.#weight;
  }

  /** Whether nothing is inside. */
  get isEmpty(): boolean {
    return this.#numInside === 0;
  }

  /**
   * Resolves when there is room; for `maxWeight` and more, when nothing else is inside. One caller alone always enters,
   * so that work continues however little room there is.
   */
  async enter(weight: number): Promise<void> {
    const before = this.#lastEntered;
    const entered = Promise.withResolvers<void>();
    this.#lastEntered = entered.promise;
    await before;
    while (this.#numInside > 0 && this.#weight + weight > Math.min(this.maxWeight, this.#room())) {
      await this.whenChanged();
    }
    this.#weight += weight;
    this.#numInside += 1;
    entered.resolve();
  }

  leave(weight: number): void {
    this.#weight -= weight;
    this.#numInside -= 1;
    this.#left.resolve();
    this.#left = Promise.withResolvers();
  }

  /** Resolves when something inside or outside has left. */
  async whenChanged(): Promise<void> {
    const left = this.#left.promise;
    await (this.#whenRoomChanges === null ? left : Promise.race([left, this.#whenRoomChanges()]));
  }
}
