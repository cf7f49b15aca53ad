/** A time limit for code of users that is loaded at the start. */

/** Code that needs longer delays every start. */
const MAX_LOADING_MS = 60_000;

/** Thrown by `loadedWithin` for code that is not loaded in time. */
export class LoadingTimeout extends Error {
  override readonly name = "LoadingTimeout";
}

/**
 * Settles as `loading` does, or throws LoadingTimeout after a minute. Without it, code that awaits something that never
 * happens would keep a service from starting and from failing, and end a process in which nothing else runs without a
 * message.
 */
export async function loadedWithin<Value>(loading: Promise<Value>): Promise<Value> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    const message = `it did not load within ${MAX_LOADING_MS / 1000} seconds; it may await something that never happens`;
    late.reject(new LoadingTimeout(message));
  }, MAX_LOADING_MS);
  try {
    return await Promise.race([loading, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
