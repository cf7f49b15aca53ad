/** Records of the store that cannot be read, because of an edit by hand or a disk error. */
import type { Logger } from "../logger.ts";

/** Keys remembered as logged. Beyond this number the store has another problem, and the log need not repeat it. */
const MAX_LOGGED_KEYS = 1000;

/** The object exists but is not a valid record. Reading it again does not help. */
export class DamagedRecordError extends Error {
  override readonly name = "DamagedRecordError";

  constructor(key: string, cause: unknown) {
    super(`The record ${key} is damaged.`, { cause });
  }
}

/** Mutable. Logs each damaged record once, however often it is read. */
export class DamageLog {
  readonly #logger: Logger;
  readonly #keys = new Set<string>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  report(key: string, error: unknown): void {
    if (this.#keys.has(key) || this.#keys.size >= MAX_LOGGED_KEYS) return;
    this.#keys.add(key);
    this.#logger.error("A record in the store of batches is damaged and is skipped.", { key, error });
  }
}
