/** Logs the troubles of Redis: once when it is no longer used, with the reason, and once when it is used again. */
import type { Logger } from "../logger.ts";

type RedisOperation = "reads" | "writes";

/** Replies of a cluster node for keys that other nodes hold or that are in different slots. */
const clusterReply = /^(?:MOVED|ASK|CROSSSLOT|CLUSTERDOWN)\b/;

/** Mutable. Troubles that follow from another one are not logged. */
export class RedisLog {
  readonly #logger: Logger;
  #isDisconnected = false;
  #isSilent = false;
  #isCluster = false;
  readonly #refused = new Set<RedisOperation>();
  /** Number of calls that were abandoned. */
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

  /**
   * @param numGivenUpBefore The value of `numGivenUp` when the call was made: if it has changed, the answer was late.
   */
  answered(operation: RedisOperation, numGivenUpBefore: number): void {
    if (this.#isSilent && this.numGivenUp === numGivenUpBefore) {
      this.#isSilent = false;
      this.#logger.info("Redis answers in time again");
    }
    // A cluster node answers some keys and rejects others.
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
