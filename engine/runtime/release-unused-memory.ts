/** Returns the memory of a process without work to the system. */
import { collectGarbage } from "./collect-garbage.ts";

/**
 * Collects the garbage of this thread, then returns freed memory of the whole process, which the C library would keep.
 * Blocks the thread for 20 to 60 ms with a heap of 40 MB, and longer with a larger one.
 */
export async function releaseUnusedMemory(): Promise<void> {
  await collectGarbage();
  // Imported late, because it loads native libraries, and the port opens before they are needed.
  const { releaseFreedMemory } = await import("./release-memory.ts");
  releaseFreedMemory();
}
