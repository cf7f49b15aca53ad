/** Bodies of messages that the client of a queue has parsed already. */

/** Deeper than any message may be nested. */
const TOO_DEEP_LEVELS = 2_000;

/**
 * The body as JSON. A body that is nested more deeply than JSON can be written becomes a smaller one that is nested too
 * deeply as well, so that the job is rejected for that reason.
 */
export function toJsonText(body: unknown): string {
  try {
    return JSON.stringify(body ?? null);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return "[".repeat(TOO_DEEP_LEVELS) + "]".repeat(TOO_DEEP_LEVELS);
  }
}
