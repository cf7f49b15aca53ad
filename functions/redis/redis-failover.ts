/**
 * When a connection to Redis is replaced although it is open. After a failover, the old primary is a replica: it keeps
 * its connections and rejects their writes. A new connection reaches the new primary, because the server's name or its
 * proxy leads there.
 */

/**
 * An answer that is outstanding for longer never comes: a proxy or a firewall has forgotten the connection, which the
 * kernel notices after a quarter of an hour. Longer than the calls that wait for a job, which BullMQ ends after 10 s.
 */
export const MAX_SILENCE_MS = 15_000;

/** Whether a replica rejected a write. Older servers put words of their own before it in the error of a script. */
export function isOfReplica({ message }: Error): boolean {
  return /\bREADONLY\b/.test(message);
}

/** A server that is meant to be read-only still answers reads, and each new connection to it interrupts them. */
const MIN_AGE_MS = 15_000;

/**
 * For `reconnectOnError` of one connection: whether to close it and connect again. Between two times, `minAgeMs` pass.
 *
 * @param onLeave Called before that.
 */
export function leaveReplica(onLeave: () => void, minAgeMs = MIN_AGE_MS): (error: Error) => boolean {
  let openedAt = performance.now();
  return (error) => {
    const now = performance.now();
    if (!isOfReplica(error) || now - openedAt < minAgeMs) return false;
    openedAt = now;
    onLeave();
    return true;
  };
}
