/** A real store with a fault injected into one call of a process: it fails, hangs, or is the process's last call. */
import { setTimeout as sleep } from "node:timers/promises";

import type { ResultLog, ResultLogs } from "../../../functions/batch/result-log.ts";
import { StorageError } from "../../../functions/storage/object-store.ts";
import type { ObjectStore } from "../../../functions/storage/object-store.ts";

/**
 * `refused`: the call fails and does nothing. `lost answer`: it fails although it was done. `hangs`: it fails after a
 * while, and a write is done even later. `dies before` and `dies after` the call: nothing that the process does from
 * then on has an effect, and it gets no more answers. `is late`: it is done after a while.
 */
export const faults = ["refused", "lost answer", "hangs", "dies before", "dies after"] as const;
export type Fault = (typeof faults)[number] | "is late";

/** A call that hangs fails after this time. */
const HANG_MS = 20;
/** A late call takes this much longer. Most batches have ended by then, unless the machine is slow. */
const LATE_MS = 150;

/** Mutable; one process. Calls are counted from 1, including those that read another piece of an object. */
export class FaultyProcess {
  numCalls = 0;
  readonly #at: number;
  readonly #fault: Fault;
  readonly #died = Promise.withResolvers<void>();
  readonly #buried = Promise.withResolvers<never>();
  #isDead = false;
  #isLate = false;

  /** @param at Number of the faulty call; Infinity for none. */
  constructor(at: number, fault: Fault) {
    this.#at = at;
    this.#fault = fault;
    this.#buried.promise.catch(() => {});
  }

  /** Whether the faulty call has happened. */
  get isHit(): boolean {
    return this.numCalls >= this.#at;
  }

  get isDead(): boolean {
    return this.#isDead;
  }

  /** Whether a call has failed whose write the store has yet to do. */
  get isLate(): boolean {
    return this.#isLate;
  }

  /** Resolves when the process dies. */
  get died(): Promise<void> {
    return this.#died.promise;
  }

  /** Fails the calls for which a dead process is still waiting, so that it can be disposed of. */
  bury(): void {
    this.#isDead = true;
    this.#buried.reject(new StorageError("Reaching the store", new Error("the process is dead")));
  }

  /** @param later Does the work of a hanging call after it has failed. */
  async call<Value>(work: () => Promise<Value>, later: () => Promise<unknown> = async () => {}): Promise<Value> {
    if (this.#isDead) return this.#buried.promise;
    this.numCalls += 1;
    if (this.numCalls !== this.#at) return this.#unlessDead(await work());
    switch (this.#fault) {
      case "refused":
        throw failure("refused");
      case "lost answer":
        await work();
        throw failure("the answer was lost");
      case "hangs":
        await sleep(HANG_MS);
        this.#isLate = true;
        void sleep(LATE_MS)
          .then(later)
          .finally(() => (this.#isLate = false));
        throw failure("no answer came in time");
      case "is late":
        await sleep(LATE_MS);
        return work();
      case "dies after":
        await work();
        return this.#die();
      case "dies before":
        return this.#die();
    }
  }

  #die(): Promise<never> {
    this.#isDead = true;
    this.#died.resolve();
    return this.#buried.promise;
  }

  #unlessDead<Value>(value: Value): Value | Promise<never> {
    return this.#isDead ? this.#buried.promise : value;
  }
}

function failure(reason: string): StorageError {
  return new StorageError("Reaching the store", new Error(reason));
}

/** The store as the process sees it. */
export function withFaults(store: ObjectStore, process: FaultyProcess): ObjectStore {
  return {
    async write(key, chunks) {
      // The bytes are those at the time of the call, whenever the store reads them.
      const bytes: Uint8Array[] = [];
      for await (const chunk of chunks) bytes.push(chunk);
      const write = (): Promise<number> => store.write(key, bytes);
      return process.call(write, write);
    },
    async read(key) {
      const bytes = await process.call(() => readAll(store, key));
      if (bytes === null) return null;
      async function* chunks(all: Buffer): AsyncGenerator<Uint8Array> {
        const middle = Math.floor(all.byteLength / 2);
        yield all.subarray(0, middle);
        await process.call(async () => {});
        yield all.subarray(middle);
      }
      return { numBytes: bytes.byteLength, chunks: chunks(bytes) };
    },
    delete: (key) => process.call(() => store.delete(key)),
    list: (prefix) => process.call(() => store.list(prefix)),
    measure: (prefix) => process.call(() => store.measure(prefix)),
    close: () => store.close(),
  };
}

async function readAll(store: ObjectStore, key: string): Promise<Buffer | null> {
  const object = await store.read(key);
  if (object === null) return null;
  const chunks: Uint8Array[] = [];
  for await (const chunk of object.chunks) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** The same for logs that are not objects of the store. */
export function logsWithFaults(logs: ResultLogs, process: FaultyProcess): ResultLogs {
  return {
    async open(name, signal) {
      let opened: ResultLog | null = null;
      const open = async (): Promise<ResultLog> => (opened = await logs.open(name, signal));
      const log = await process.call(open).catch(async (error: unknown) => {
        // A process that did not get the answer cannot close what it does not know.
        await opened?.close();
        throw error;
      });
      async function* read(): AsyncGenerator<Uint8Array> {
        await process.call(async () => {});
        yield* log.read();
      }
      return {
        ...log,
        append: (line) => process.call(() => log.append(line)),
        flush: () => process.call(() => log.flush()),
        read,
      };
    },
    delete: (name) => process.call(() => logs.delete(name)),
  };
}
