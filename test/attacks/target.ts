/** A service under attack with the environment of a class of attacks; replaced if an attack has ended it. */
import { setTimeout as delay } from "node:timers/promises";

import type { AttackClass, Surroundings } from "./attack.ts";
import { OrdinaryRequest } from "./ordinary-request.ts";
import { startServiceUnderAttack } from "./service-under-attack.ts";
import type { Figures, Holdings, ServiceUnderAttack } from "./service-under-attack.ts";
import { Wire } from "./wire.ts";

export type StartService = (environment: Readonly<Record<string, string>>) => Promise<ServiceUnderAttack>;

/** Time for abandoned sequences, requests and connections to end. */
const SETTLE_DEADLINE_MS = 30_000;
const SETTLE_POLL_MS = 20;
/** Additional resources of one type: clients of stores and caches keep a few connections. */
const MAX_MORE_RESOURCES = 8;
/** Additional bytes. A body of the maximum size, or a picture, that is kept by mistake shows at once. */
const MAX_GROWTH_BYTES = 32 * 1024 ** 2;

export interface TargetOptions {
  readonly start?: StartService;
  /** How long requests may take to end after their clients have disconnected. */
  readonly settleDeadlineMs?: number;
}

/** Mutable. */
export class Target implements AsyncDisposable {
  readonly surroundings: Surroundings;
  readonly #start: StartService;
  readonly #settleDeadlineMs: number;
  #service: ServiceUnderAttack;
  #wire: Wire;
  #ordinary: OrdinaryRequest;

  private constructor(surroundings: Surroundings, { start, settleDeadlineMs }: Required<TargetOptions>, parts: Parts) {
    this.surroundings = surroundings;
    this.#start = start;
    this.#settleDeadlineMs = settleDeadlineMs;
    [this.#service, this.#wire, this.#ordinary] = [parts.service, parts.wire, parts.ordinary];
  }

  static async prepare(
    attackClass: Pick<AttackClass, "prepare">,
    { start = startServiceUnderAttack, settleDeadlineMs = SETTLE_DEADLINE_MS }: TargetOptions = {},
  ): Promise<Target> {
    const surroundings = await attackClass.prepare();
    return new Target(surroundings, { start, settleDeadlineMs }, await startParts(surroundings, start));
  }

  get wire(): Wire {
    return this.#wire;
  }

  get ordinary(): OrdinaryRequest {
    return this.#ordinary;
  }

  figures(): Promise<Figures> {
    return this.#service.figures();
  }

  /** Complaints of the service and its environment since the last call. */
  takeComplaints(): string[] {
    return [...this.#service.takeComplaints(), ...(this.surroundings.takeProblems?.() ?? [])];
  }

  /** Ends the service and starts it again. */
  async restart(): Promise<void> {
    await this.#stop();
    const parts = await startParts(this.surroundings, this.#start);
    [this.#service, this.#wire, this.#ordinary] = [parts.service, parts.wire, parts.ordinary];
  }

  /**
   * Closes all connections and waits until nothing is running. Returns what is held then. Throws if something keeps
   * running.
   */
  async settle(baseline: Holdings | null): Promise<Holdings> {
    const { headers } = this.surroundings;
    await this.#wire[Symbol.asyncDispose]();
    this.#wire = new Wire(this.#service.baseUrl, headers);
    this.#ordinary = this.#ordinary.over(this.#wire);
    const deadline = performance.now() + this.#settleDeadlineMs;
    for (;;) {
      const { numSequences, numRequests } = await this.#service.figures();
      const holdings = await this.#service.holdings();
      const problem =
        numSequences + numRequests > 0
          ? `${numSequences} sequences and ${numRequests} requests are in progress although no client waits for them.`
          : baseline && growthOf(holdings, baseline);
      if (problem === null) return holdings;
      if (performance.now() > deadline) throw new Error(problem);
      await delay(SETTLE_POLL_MS);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stop();
    await this.surroundings[Symbol.asyncDispose]();
  }

  async #stop(): Promise<void> {
    await this.#wire[Symbol.asyncDispose]();
    await this.#service[Symbol.asyncDispose]();
  }
}

interface Parts {
  readonly service: ServiceUnderAttack;
  readonly wire: Wire;
  readonly ordinary: OrdinaryRequest;
}

async function startParts(surroundings: Surroundings, start: StartService): Promise<Parts> {
  const service = await start(surroundings.environment);
  const wire = new Wire(service.baseUrl, surroundings.headers);
  await surroundings.plant?.(wire);
  return { service, wire, ordinary: await OrdinaryRequest.learn(service, wire) };
}

/** Resources above the allowance; null if there are none. */
function growthOf(holdings: Holdings, baseline: Holdings): string | null {
  const growth = holdings.numBytes - baseline.numBytes;
  if (growth > MAX_GROWTH_BYTES) {
    return `The main thread holds ${growth} bytes more than before, after a collection of garbage; at most ${MAX_GROWTH_BYTES} may stay.`;
  }
  for (const [type, count] of Object.entries(holdings.numResources)) {
    const before = baseline.numResources[type] ?? 0;
    if (count > before + MAX_MORE_RESOURCES) return `${count} of ${type} are open; before there were ${before}.`;
  }
  return null;
}
