/** What a processor throws that knows which rows it failed at and has served all the others. */

export class RowFailures extends Error {
  /** What was thrown, by row index. */
  readonly failures: ReadonlyMap<number, unknown>;

  constructor(failures: ReadonlyMap<number, unknown>) {
    super([...failures.values()].map(reasonOf).join("; "));
    this.failures = failures;
  }
}

export function reasonOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
