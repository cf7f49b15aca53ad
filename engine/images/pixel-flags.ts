/** What the HTTP thread and a thread that processes a picture tell each other: flags in shared memory, 0 or 1. */

/** The result is no longer needed. */
const ABANDONED = 0;
/** A pixel program runs. */
const IN_PROGRAM = 1;

/** Mutable. */
export class PixelFlags {
  readonly shared: Int32Array<SharedArrayBuffer>;

  /** @param shared Of the other thread's. Default: new flags, all of them 0. */
  constructor(shared = new Int32Array(new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT))) {
    this.shared = shared;
  }

  get isAbandoned(): boolean {
    return Atomics.load(this.shared, ABANDONED) !== 0;
  }

  abandon(): void {
    Atomics.store(this.shared, ABANDONED, 1);
  }

  get isInProgram(): boolean {
    return Atomics.load(this.shared, IN_PROGRAM) !== 0;
  }

  enterProgram(): void {
    Atomics.store(this.shared, IN_PROGRAM, 1);
  }

  leaveProgram(): void {
    Atomics.store(this.shared, IN_PROGRAM, 0);
  }
}
