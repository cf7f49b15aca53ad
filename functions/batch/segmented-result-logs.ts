/**
 * Result logs as objects of a store that knows no appending. Lines gather for some seconds and are then kept together,
 * as a segment that is whole or not there at all; what a killed process had gathered is answered again.
 */
import { randomUUID } from "node:crypto";

import type { ObjectStore } from "../storage/object-store.ts";
import { readLines } from "./numbered-lines.ts";
import { addDone, MAX_RESULT_BYTES, noLines } from "./result-file.ts";
import type { ResultLine } from "./result-line.ts";
import type { ResultLog, ResultLogs } from "./result-log.ts";

const MAX_SEGMENT_BYTES = 4 * 1024 ** 2;
const SEGMENT_DIGITS = 6;

/** @param flushMs How long a line waits for others at most. */
export function createSegmentedResultLogs(store: ObjectStore, flushMs: number): ResultLogs {
  const keysOf = (name: string): Promise<readonly string[]> => store.list(`results/${name}.`);

  async function* read(name: string): AsyncGenerator<Uint8Array> {
    for (const key of await keysOf(name)) yield* (await store.read(key))?.chunks ?? [];
  }

  return {
    async open(name) {
      const done = noLines();
      for await (const { text } of readLines(read(name), MAX_RESULT_BYTES)) addDone(done, text);
      const segments = new Segments(store, { name, first: (await keysOf(name)).length, flushMs });
      return { done, append: segments.append, close: segments.close, read: () => read(name) } satisfies ResultLog;
    },
    async delete(name) {
      for (const key of await keysOf(name)) await store.delete(key);
    },
  };
}

interface SegmentOptions {
  readonly name: string;
  /** Number of the first one. */
  readonly first: number;
  readonly flushMs: number;
}

/** Mutable. Its segments are its own: two writers, which only a lost lock brings about, do not overwrite each other. */
class Segments {
  readonly #store: ObjectStore;
  readonly #options: SegmentOptions;
  readonly #writer = randomUUID();
  #number: number;
  #gathered: Buffer[] = [];
  #numGatheredBytes = 0;
  #timer: NodeJS.Timeout | null = null;
  #lastWrite = Promise.resolve();
  #failure: { readonly cause: unknown } | null = null;

  constructor(store: ObjectStore, options: SegmentOptions) {
    this.#store = store;
    this.#options = options;
    this.#number = options.first;
  }

  /** Resolves at once, unless much has been gathered. Rejects where an earlier line could not be kept. */
  readonly append = async (line: ResultLine): Promise<void> => {
    if (this.#failure !== null) throw this.#failure.cause;
    const bytes = Buffer.from(`${JSON.stringify(line)}\n`);
    this.#gathered.push(bytes);
    this.#numGatheredBytes += bytes.byteLength;
    this.#timer ??= setTimeout(() => void this.#flush().catch(() => {}), this.#options.flushMs);
    if (this.#numGatheredBytes >= MAX_SEGMENT_BYTES) await this.#flush();
  };

  /** Keeps what is gathered. Rejects where a line could not be kept. */
  readonly close = async (): Promise<void> => {
    await this.#flush();
    if (this.#failure !== null) throw this.#failure.cause;
  };

  #flush(): Promise<void> {
    clearTimeout(this.#timer ?? undefined);
    this.#timer = null;
    this.#lastWrite = this.#lastWrite.then(() => this.#writeGathered());
    return this.#lastWrite;
  }

  async #writeGathered(): Promise<void> {
    if (this.#gathered.length === 0) return;
    const segment = this.#gathered;
    this.#gathered = [];
    this.#numGatheredBytes = 0;
    const number = String(this.#number++).padStart(SEGMENT_DIGITS, "0");
    try {
      await this.#store.write(`results/${this.#options.name}.${number}.${this.#writer}`, segment);
    } catch (cause) {
      this.#failure ??= { cause };
      throw cause;
    }
  }
}
