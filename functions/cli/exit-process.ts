import { Session } from "node:inspector/promises";

/**
 * Ends the process. Node 24 then waits for V8's compiler threads, and one of them that waits until this thread has
 * collected garbage would wait forever, so garbage is collected first.
 */
export async function exitProcess(code: number): Promise<never> {
  const session = new Session();
  session.connect();
  await session.post("HeapProfiler.collectGarbage").catch(() => undefined);
  process.exit(code);
}
