/** Thrown by a processor that knows the rows at which it failed and has processed all others. */

export class RowFailures extends Error {
  /** Thrown values by row index. */
  readonly failures: ReadonlyMap<number, unknown>;

  constructor(failures: ReadonlyMap<number, unknown>) {
    super([...failures.values()].map(reasonOf).join("; "));
    this.failures = failures;
  }
}

/** A message may contain a whole row of logits. */
const MAX_REASON_CHARACTERS = 2000;

/** Never throws: some values have no text, and whoever reports one must not fail. */
export function reasonOf(thrown: unknown): string {
  try {
    const reason = String(thrown instanceof Error ? thrown.message : thrown);
    return reason.length > MAX_REASON_CHARACTERS ? `${reason.slice(0, MAX_REASON_CHARACTERS)}…` : reason;
  } catch {
    return "it threw a value that has no text";
  }
}
