/** Frees what JavaScript no longer reaches, once, where much of it has just become unreachable. */
import { Session } from "node:inspector/promises";

/**
 * A full collection of this thread's heap, which also gives the pages that it empties back to the system; V8 would keep
 * them for the next objects. Takes 20 to 60 ms, during which the thread does nothing else.
 */
export async function collectGarbage(): Promise<void> {
  const session = new Session();
  session.connect();
  try {
    await session.post("HeapProfiler.collectGarbage");
  } finally {
    session.disconnect();
  }
}
