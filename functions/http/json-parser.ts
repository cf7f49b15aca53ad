/** Parses bodies: short ones directly, long ones on a separate thread. */
import { extname } from "node:path";
import type { Piscina } from "piscina";

import { parseJsonBytes } from "./bounded-json.ts";
import type { ParsedJson } from "./bounded-json.ts";

/** Parsing 1 MiB takes 2 to 10 ms, less than starting a thread does; parsing 32 MiB takes 100 to 200 ms. */
const MAX_INLINE_BYTES = 1024 ** 2;
/** The thread ends after this time, because an idle replica should not hold its memory. */
const IDLE_TIMEOUT_MS = 30_000;

/** Owns a thread while there are long bodies. */
export class JsonParser {
  #pool: Promise<Piscina<Uint8Array, ParsedJson>> | null = null;

  /** Takes over the memory of `bytes`, which must be its only view. */
  async parse(bytes: Uint8Array<ArrayBuffer>): Promise<ParsedJson> {
    if (bytes.byteLength <= MAX_INLINE_BYTES) return parseJsonBytes(bytes);
    this.#pool ??= startPool();
    return (await this.#pool).run(bytes, { transferList: [bytes.buffer] });
  }

  /** Ends the thread and its current work. */
  async close(): Promise<void> {
    await (await this.#pool)?.destroy();
  }
}

async function startPool(): Promise<Piscina<Uint8Array, ParsedJson>> {
  const { Piscina } = await import("piscina");
  const pool: Piscina<Uint8Array, ParsedJson> = new Piscina({
    // Sources are .ts, built modules .js, like this one.
    filename: new URL(`./json-worker${extname(import.meta.url)}`, import.meta.url).href,
    name: "parseBody",
    minThreads: 0,
    // The engine and the pictures need the other cores. The caller bounds the number of waiting bodies.
    maxThreads: 1,
    idleTimeout: IDLE_TIMEOUT_MS,
    recordTiming: false,
  });
  // A thread that dies between two tasks is harmless: the next task starts another.
  pool.on("error", () => {});
  return pool;
}
