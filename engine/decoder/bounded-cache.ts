/** A map of disposable values that evicts the least recently used one. */

/** Mutable; owns its values. */
export class BoundedCache<Key, Value extends Disposable> implements Disposable {
  readonly #maxSize: number;
  /** Ordered by last use. */
  readonly #values = new Map<Key, Value>();

  constructor(maxSize: number) {
    this.#maxSize = maxSize;
  }

  getOrCreate(key: Key, create: () => Value): Value {
    const value = this.#values.get(key) ?? create();
    this.#values.delete(key);
    this.#values.set(key, value);
    if (this.#values.size > this.#maxSize) this.#dropOldest();
    return value;
  }

  [Symbol.dispose](): void {
    for (const value of this.#values.values()) value[Symbol.dispose]();
    this.#values.clear();
  }

  #dropOldest(): void {
    for (const [key, value] of this.#values) {
      this.#values.delete(key);
      value[Symbol.dispose]();
      return;
    }
  }
}
