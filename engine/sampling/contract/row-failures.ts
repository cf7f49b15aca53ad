/** Thrown by a processor that knows the rows at which it failed and has processed all others. */

export class RowFailures extends Error {
  /** Thrown values by row index. */
  readonly failures: ReadonlyMap<number, unknown>;

  constructor(failures: ReadonlyMap<number, unknown>) {
    super([...failures.values()].map(reasonOf).join("; "));
    this.failures = failures;
  }
}

export function reasonOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
