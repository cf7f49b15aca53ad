/**
 * Connections to a Redis server that a failover has made a replica. It keeps them and rejects their writes, for as long
 * as they last, while its name or its proxy already leads to the new primary.
 */

/** Also in the message of a script, which older servers begin with words of their own. */
export function isOfReplica({ message }: Error): boolean {
  return /\bREADONLY\b/.test(message);
}

/** A server that is meant to be read-only still answers reads, and each new connection to it interrupts them. */
const MIN_AGE_MS = 15_000;

/**
 * For `reconnectOnError` of one connection: whether it should be opened anew, which it is at most once per `minAgeMs`.
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
