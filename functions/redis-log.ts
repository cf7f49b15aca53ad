/** What the log says of a Redis in trouble: once that and why it is not used, and once that it is again. */
import type { Logger } from "./logger.ts";

type RedisOperation = "reads" | "writes";

/** What a node of a cluster says of keys that others hold, or that lie apart. */
const clusterReply = /^(?:MOVED|ASK|CROSSSLOT|CLUSTERDOWN)\b/;

/** Mutable. Of the troubles there can be at once, those that follow from another are not told. */
export class RedisLog {
  readonly #logger: Logger;
  #isDisconnected = false;
  #isSilent = false;
  #isCluster = false;
  readonly #refused = new Set<RedisOperation>();
  /** Calls that nobody waited for to the end. */
  numGivenUp = 0;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  disconnected(reason: string): void {
    if (this.#isDisconnected) return;
    this.#isDisconnected = true;
    this.#logger.warn("Redis is unreachable; requests skip it until it recovers", { reason });
  }

  connected(): void {
    if (this.#isDisconnected) this.#logger.info("Redis is connected again");
    this.#isDisconnected = false;
  }

  givenUp(timeoutMs: number): void {
    this.numGivenUp += 1;
    if (this.#isSilent || this.#isDisconnected) return;
    this.#isSilent = true;
    this.#logger.warn("Redis does not answer in time; requests skip it until it does", { timeoutMs });
  }

  /** @param numGivenUpBefore As many as had been when the call was made: an answer that nobody waited for was late. */
  answered(operation: RedisOperation, numGivenUpBefore: number): void {
    if (this.#isSilent && this.numGivenUp === numGivenUpBefore) {
      this.#isSilent = false;
      this.#logger.info("Redis answers in time again");
    }
    // Of a cluster's node some keys can be had and others not.
    if (this.#refused.delete(operation) && !this.#isCluster) this.#logger.info(`Redis accepts ${operation} again`);
  }

  refused(operation: RedisOperation, reply: string): void {
    if (this.#isDisconnected || this.#isCluster || this.#refused.has(operation)) return;
    this.#refused.add(operation);
    this.#isCluster = clusterReply.test(reply);
    const reason = this.#isCluster
      ? `It is a node of a cluster, and REDIS_URL must name a single server: ${reply}`
      : reply;
    this.#logger.warn(`Redis rejects ${operation}; requests skip them until it accepts them`, { reason });
  }
}
