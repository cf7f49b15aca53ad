/** Limits the work in progress. */
import { settledBefore } from "./settled-before.ts";

export interface WorkWindowOptions {
  /** The part of `maxWeight` that others leave free now. Default: all of it. */
  readonly room?: () => number;
  /** Resolves when `room` may have grown, and when others have left. Default: never. */
  readonly whenRoomChanges?: () => Promise<void>;
  /** Whether others use the engine, however little of it. Default: whether they leave less than `maxWeight` free. */
  readonly hasOthers?: () => boolean;
  /** Of all lines that are in memory. Default: no limit. */
  readonly maxLineBytes?: number;
}

/** Mutable. Enters in the order of calls. */
export class WorkWindow {
  readonly maxWeight: number;
  /** The lines in memory, whose weight is their bytes: those inside, and those that wait to enter. Null without a limit. */
  readonly memory: WorkWindow | null;
  readonly #room: () => number;
  readonly #whenRoomChanges: (() => Promise<void>) | null;
  readonly #hasOthers: () => boolean;
  #weight = 0;
  #numInside = 0;
  #lastEntered = Promise.resolve();
  #left = Promise.withResolvers<void>();
  /** Called when work has ended inside. */
  readonly #onEnded = new Set<(value?: unknown) => void>();

  constructor(maxWeight: number, options: WorkWindowOptions = {}) {
    const { room = () => maxWeight, whenRoomChanges, maxLineBytes } = options;
    this.maxWeight = maxWeight;
    this.memory = maxLineBytes === undefined ? null : new WorkWindow(maxLineBytes);
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

  /** Like `enter`, until the signal is aborted. False if that happens first; then the work is outside. */
  async tryEnter(weight: number, stopping: AbortSignal): Promise<boolean> {
    const entering = this.enter(weight);
    if (await settledBefore(stopping, entering)) return true;
    void entering.then(() => this.leave(weight));
    return false;
  }

  /** For work that has ended. */
  leave(weight: number): void {
    this.stepOut(weight);
    for (const notify of this.#onEnded) notify();
  }

  /** For work that the engine has rejected, and that will enter again. */
  stepOut(weight: number): void {
    this.#weight -= weight;
    this.#numInside -= 1;
    this.#left.resolve();
    this.#left = Promise.withResolvers();
  }

  /**
   * For work that has stepped out: resolves when the engine may have room for it, because work inside or outside has ended
   * `numChanges` times, or nothing outside uses the engine. Work that steps out is no change: two of it would wake each
   * other for ever. Also resolves when one of the signals is aborted.
   */
  async whenChangedOften(numChanges: number, signals: readonly AbortSignal[]): Promise<void> {
    for (let count = 0; count < numChanges && this.hasOthers; count += 1) {
      if (signals.some(({ aborted }) => aborted)) return;
      const { promise: changed, resolve } = Promise.withResolvers<unknown>();
      this.#onEnded.add(resolve);
      for (const signal of signals) signal.addEventListener("abort", resolve, { once: true });
      void this.#whenRoomChanges?.().then(resolve);
      await changed;
      this.#onEnded.delete(resolve);
      for (const signal of signals) signal.removeEventListener("abort", resolve);
    }
  }

  /** Resolves when something inside or outside has left. */
  async whenChanged(): Promise<void> {
    const left = this.#left.promise;
    await (this.#whenRoomChanges === null ? left : Promise.race([left, this.#whenRoomChanges()]));
  }
}
