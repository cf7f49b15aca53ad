/** Shares work by key: a value is read from a cache, awaited from another request, or computed. */
import { untilAborted } from "../../concurrent-work.ts";
import { EngineError, invariant } from "../../contract/errors.ts";
import type { ValueCache } from "./tiered-cache.ts";

/** Returns values, by position, for keys that no other request is processing. May reject as a whole. */
export type ProcessMissing<Value> = (missing: readonly string[]) => Promise<readonly Value[]>;

/** Mutable. */
export class ProcessorCache<Value, Cache extends ValueCache<Value> = ValueCache<Value>> {
  readonly cache: Cache;
  readonly #toKept: (value: Value) => Value;
  /** Keys that a request is looking up or processing. Settles without a value if that request failed. */
  readonly #inWork = new Map<string, Promise<Value | null>>();

  /** @param toKept Converts a processed value into the one that is cached and returned to all requests. */
  constructor(cache: Cache, toKept: (value: Value) => Value = (value) => value) {
    this.cache = cache;
    this.#toKept = toKept;
  }

  /** Reads the cache, by position; null for missing values, also if they are being processed. Never rejects. */
  getMany(keys: readonly string[]): Promise<readonly (Value | null)[]> {
    return this.cache.getMany(keys);
  }

  /**
   * Returns values by position; equal keys get one value. Keys that are neither cached nor being processed are
   * processed in one call. A request's failure is its own (it was aborted, or another of its images is broken):
   * requests that waited for its work take it over. Rejects with the errors of `processMissing`, or with `aborted` as
   * soon as `signal` aborts while it waits for others.
   */
  async getOrProcess(
    keys: readonly string[],
    processMissing: ProcessMissing<Value>,
    signal: AbortSignal,
  ): Promise<readonly Value[]> {
    const values = new Map<string, Value>();
    for (;;) {
      const wanted = [...new Set(keys)].filter((key) => !values.has(key));
      if (wanted.length === 0) break;
      const others = wanted.filter((key) => this.#inWork.has(key));
      const own = wanted.filter((key) => !this.#inWork.has(key));
      const waited = others.map((key) => this.#inWork.get(key)!);
      const results = [
        ...(await this.#work(own, processMissing)),
        ...(await unlessAborted(Promise.all(waited), signal)),
      ];
      for (const [index, key] of [...own, ...others].entries()) {
        const value = results[index] ?? null;
        if (value !== null) values.set(key, value);
      }
    }
    return keys.map((key) => values.get(key)!);
  }

  /** Looks up and processes keys for this request and for all that request them meanwhile. */
  async #work(keys: readonly string[], processMissing: ProcessMissing<Value>): Promise<readonly Value[]> {
    if (keys.length === 0) return [];
    const work = this.#lookUpOrProcess(keys, processMissing);
    for (const [index, key] of keys.entries()) {
      this.#inWork.set(
        key,
        work.then(
          (values) => values[index]!,
          () => null,
        ),
      );
    }
    try {
      return await work;
    } finally {
      for (const key of keys) this.#inWork.delete(key);
    }
  }

  async #lookUpOrProcess(keys: readonly string[], processMissing: ProcessMissing<Value>): Promise<readonly Value[]> {
    const cached = await this.cache.getMany(keys);
    const missing = keys.filter((_, index) => cached[index] === null);
    if (missing.length === 0) return cached as readonly Value[];
    const processed = (await processMissing(missing)).map(this.#toKept);
    invariant(processed.length === missing.length, `${processed.length} values for ${missing.length} keys`);
    this.cache.setMany(missing.map((key, index) => ({ key, value: processed[index]! })));
    let next = 0;
    return cached.map((value) => value ?? processed[next++]!);
  }
}

async function unlessAborted<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value> {
  try {
    return await untilAborted(work, signal);
  } catch (error) {
    if (!signal.aborted || error !== signal.reason) throw error;
    throw new EngineError("aborted", "The request was aborted while an image was being processed.", { cause: error });
  }
}
