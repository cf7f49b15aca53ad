/** Waits for a service that was started as a child process. */
import { createInterface } from "node:readline";

/** Resolves to the port, once the log says that the model is loaded. Rejects if the log ends before. */
export async function portOfReadyService(log: NodeJS.ReadableStream): Promise<number> {
  let port: number | null = null;
  for await (const line of createInterface({ input: log })) {
    if (!line.startsWith("{")) continue;
    const entry = JSON.parse(line) as { readonly message: string; readonly port?: number };
    if (entry.message === "Listening.") port = entry.port ?? null;
    if (entry.message === "Ready." && port !== null) {
      log.resume();
      return port;
    }
  }
  throw new Error("The service ended before it was ready.");
}
