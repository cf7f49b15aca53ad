/**
 * Result logs as objects of a store that cannot append. Lines are collected for some seconds and stored together as a
 * segment, which exists as a whole or not at all. Lines that a killed process had collected are answered again.
 */
import { setTimeout as sleep } from "node:timers/promises";

import { randomUuid } from "../../engine/index.ts";
import type { Logger } from "../logger.ts";
import { StorageError } from "../storage/object-store.ts";
import type { ObjectStore } from "../storage/object-store.ts";
import { readLines } from "./numbered-lines.ts";
import { addDone, MAX_RESULT_BYTES, noLines } from "./result-file.ts";
import { isSuccess, toText } from "./result-line.ts";
import type { ResultLine } from "./result-line.ts";
import type { ResultLog, ResultLogs, StoredResults } from "./result-log.ts";

/** Maximum size collected in memory: further lines wait until it is stored. */
const MAX_SEGMENT_BYTES = 4 * 1024 ** 2;
const SEGMENT_DIGITS = 6;

export interface SegmentedResultLogsOptions {
  readonly store: ObjectStore;
  /** Maximum time that a line waits for others. */
  readonly flushMs: number;
  /** Delay before a segment is stored again after a failure. It doubles with each attempt up to the second value. */
  readonly retryMs: { readonly first: number; readonly most: number };
  /** Attempts to store a segment before the log fails: its next owner has the lines answered again. */
  readonly maxNumAttempts: number;
  readonly logger: Logger;
}

export function createSegmentedResultLogs(options: SegmentedResultLogsOptions): ResultLogs {
  const { store, logger } = options;

  async function* read(prefix: string, keys?: readonly string[]): AsyncGenerator<Uint8Array> {
    for (const key of keys ?? (await store.list(prefix))) {
      const segment = await store.read(key);
      // Segments are deleted only by a worker that has ended the batch meanwhile.
      if (segment === null) throw new StorageError("Reading results", new Error(`${key} is missing`));
      yield* segment.chunks;
    }
  }

  return {
    async open(name, signal) {
      const prefix = `results/${name}.`;
      const keys = await store.list(prefix);
      const done = noLines();
      let numDamaged = 0;
      for await (const { text } of readLines(read(prefix, keys), MAX_RESULT_BYTES))
        if (!addDone(done, text)) numDamaged += 1;
      if (numDamaged > 0) {
        logger.warn("A log of results has damaged lines; they are answered again.", { key: prefix, numDamaged });
      }
      const numStored = { numSucceeded: done.numSucceeded, numFailed: done.customIds.size - done.numSucceeded };
      const segments = new Segments(options, { prefix, first: numberAfter(keys, prefix), numStored, signal });
      return {
        done,
        numStored,
        append: segments.append,
        flush: segments.flush,
        close: segments.close,
        read: () => read(prefix),
      } satisfies ResultLog;
    },
    async delete(name) {
      for (const key of await store.list(`results/${name}.`)) await store.delete(key);
    },
  };
}

/** Number of the next segment after the existing ones. */
function numberAfter(keys: readonly string[], prefix: string): number {
  const last = Number.parseInt(keys.at(-1)?.slice(prefix.length) ?? "-1", 10);
  return Number.isSafeInteger(last) ? last + 1 : keys.length;
}

interface SegmentsOptions {
  readonly prefix: string;
  /** Number of the first segment. */
  readonly first: number;
  /** Increased whenever lines are stored. */
  readonly numStored: StoredResults;
  readonly signal: AbortSignal;
}

/** Lines that are being stored under one key. They stay together, so that a second attempt cannot store them twice. */
interface Segment {
  readonly key: string;
  readonly chunks: readonly Buffer[];
  readonly counts: Readonly<StoredResults>;
}

/**
 * Mutable. The keys contain the writer's name: if a lost lock leads to two writers, neither overwrites the segments of
 * the other.
 */
class Segments {
  readonly #logs: SegmentedResultLogsOptions;
  readonly #options: SegmentsOptions;
  readonly #writer = randomUuid();
  #number: number;
  #gathered: Buffer[] = [];
  #numGatheredBytes = 0;
  #counts: StoredResults = { numSucceeded: 0, numFailed: 0 };
  /** Started but not stored yet. */
  #segment: Segment | null = null;
  #timer: NodeJS.Timeout | undefined;
  #lastFlush = Promise.resolve();
  /** Set when the log has failed. */
  #failure: { readonly cause: unknown } | null = null;

  constructor(logs: SegmentedResultLogsOptions, options: SegmentsOptions) {
    this.#logs = logs;
    this.#options = options;
    this.#number = options.first;
  }

  /** Resolves at once unless much has been collected. Rejects once the log has failed. */
  readonly append = async (line: ResultLine): Promise<void> => {
    if (this.#failure !== null) throw this.#failure.cause;
    const bytes = Buffer.from(toText(line));
    this.#gathered.push(bytes);
    this.#numGatheredBytes += bytes.byteLength;
    this.#counts[isSuccess(line) ? "numSucceeded" : "numFailed"] += 1;
    this.#timer ??= setTimeout(() => void this.flush().catch(() => {}), this.#logs.flushMs);
    if (this.#numGatheredBytes >= MAX_SEGMENT_BYTES) await this.flush();
  };

  readonly flush = (): Promise<void> => {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#lastFlush = this.#lastFlush.catch(() => {}).then(() => this.#writeAll(this.#logs.maxNumAttempts));
    return this.#lastFlush;
  };

  readonly close = async (): Promise<void> => {
    clearTimeout(this.#timer);
    await this.#lastFlush.catch(() => {});
    // Another attempt is useful only if the store did not end the work.
    if (this.#failure === null) await this.#writeAll(1).catch(() => {});
  };

  async #writeAll(maxNumAttempts: number): Promise<void> {
    if (this.#failure !== null) throw this.#failure.cause;
    try {
      if (this.#segment !== null) await this.#write(this.#segment, maxNumAttempts);
      if (this.#gathered.length > 0) await this.#write(this.#beginSegment(), maxNumAttempts);
    } catch (cause) {
      this.#failure = { cause };
      throw cause;
    }
  }

  #beginSegment(): Segment {
    const number = String(this.#number++).padStart(SEGMENT_DIGITS, "0");
    const key = `${this.#options.prefix}${number}.${this.#writer}`;
    this.#segment = { key, chunks: this.#gathered, counts: this.#counts };
    this.#gathered = [];
    this.#numGatheredBytes = 0;
    this.#counts = { numSucceeded: 0, numFailed: 0 };
    return this.#segment;
  }

  async #write({ key, chunks, counts }: Segment, maxNumAttempts: number): Promise<void> {
    const { store, retryMs, logger } = this.#logs;
    const { numStored, signal } = this.#options;
    let delayMs = retryMs.first;
    for (let numAttempts = 1; ; numAttempts++) {
      try {
        await store.write(key, chunks);
        break;
      } catch (error) {
        if (numAttempts >= maxNumAttempts || signal.aborted) throw error;
        if (numAttempts === 1)
          logger.warn("Results cannot be stored now; they are kept in memory and retried.", { key, error });
      }
      // After an abort, it makes the last attempt at once.
      await sleep(delayMs, undefined, { signal }).catch(() => {});
      delayMs = Math.min(2 * delayMs, retryMs.most);
    }
    numStored.numSucceeded += counts.numSucceeded;
    numStored.numFailed += counts.numFailed;
    this.#segment = null;
  }
}
