/** Pictures, documents and grammars are processed in a fair order: tenants share the time, and requests their tenant's part. */
import { EngineError } from "./contract/errors.ts";

export interface QueuedWork {
  readonly tenant: string;
  /** Identity of the request. */
  readonly request: object;
  /** Lower values go before others of the same tenant. Default 0. */
  readonly priority?: number;
  /** Estimate above 0, in the same unit for all work. */
  readonly cost: number;
  /** Memory held while the work waits. */
  readonly numBytes: number;
}

export interface FairQueueLimits {
  readonly maxNumWaiting: number;
  readonly maxWaitingBytes: number;
}

/** Work that may overtake less urgent work of its tenant, one after the other; then all requests take turns again. */
export const MAX_OVERTAKING_WORK = 32;

/**
 * Weighted fair queueing (Demers, Keshav and Shenker, 1989) on two levels. If all tenants were served at the same time,
 * at equal rates, a virtual clock would show how much each has received. A new tenant starts at the clock's time, and its
 * work finishes later by its cost. The next work is the one that would finish first. The requests of a tenant share its
 * part in the same way. Equal work therefore goes round robin, and a small picture goes before the large ones of others,
 * however many requests they belong to. Priority counts only within a tenant, so that no tenant gains by it. No work
 * waits forever, because all served work advances the clock, and priority is ignored now and then. Mutable.
 */
export class FairQueue<Work extends QueuedWork> {
  readonly #limits: FairQueueLimits;
  readonly #tenants = new FairShares<string, FairShares<object, Work[]>>(() => new FairShares(() => []));
  #numWaiting = 0;
  #waitingBytes = 0;

  constructor(limits: FairQueueLimits) {
    this.#limits = limits;
  }

  get numWaiting(): number {
    return this.#numWaiting;
  }

  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  /**
   * Adds work and returns the work that had to leave because the queue is full, possibly the new work itself. The
   * request with the largest part of the queue, of the tenant with the largest part, loses its latest work, so that one
   * sender's pictures cannot lock out others. A request that is alone keeps all its work, which its own limits bound.
   */
  add(work: Work): readonly Work[] {
    this.addAdmitted(work);
    const removed: Work[] = [];
    while (this.#isTooLong()) {
      // Among equals, the newest.
      const requests = largest(this.#tenants.children.reverse(), (tenant) => this.#shareOf(tenant.children.flat()));
      const latest = largest(requests.children.reverse(), (works) => this.#shareOf(works)).at(-1)!;
      this.remove(latest);
      removed.push(latest);
    }
    return removed;
  }

  /** Adds follow-up work of admitted work: its place is kept even if the queue has become full. */
  addAdmitted(work: Work): void {
    this.#tenants.get(work.tenant).get(work.request).push(work);
    this.#count(work, 1);
  }

  /** Null if the queue is empty. */
  take(): Work | null {
    if (this.#numWaiting === 0) return null;
    const tenant = this.#tenants.next((requests) => costOfFirst(requests.next(costOfFirst, priorityOfFirst).child));
    const request = tenant.child.next(costOfFirst, priorityOfFirst);
    const work = request.child[0]!;
    tenant.child.charge(request, work.cost, priorityOfFirst);
    this.#tenants.charge(tenant, work.cost);
    this.remove(work);
    return work;
  }

  /** Does nothing for work that is no longer waiting. */
  remove(work: Work): void {
    const requests = this.#tenants.get(work.tenant);
    const works = requests.get(work.request);
    const index = works.indexOf(work);
    if (index !== -1) {
      works.splice(index, 1);
      this.#count(work, -1);
    }
    // Work beyond a member's part is not counted against it: it has advanced the clock for all others.
    if (works.length === 0) requests.delete(work.request);
    if (requests.children.length === 0) this.#tenants.delete(work.tenant);
  }

  #isTooLong(): boolean {
    const { maxNumWaiting, maxWaitingBytes } = this.#limits;
    if (this.#numWaiting <= maxNumWaiting && this.#waitingBytes <= maxWaitingBytes) return false;
    const [tenant, ...others] = this.#tenants.children;
    return others.length > 0 || tenant!.children.length > 1;
  }

  /** Sum of the shares of both limits. */
  #shareOf(works: readonly Work[]): number {
    const { maxNumWaiting, maxWaitingBytes } = this.#limits;
    return works.reduce((share, { numBytes }) => share + 1 / maxNumWaiting + numBytes / maxWaitingBytes, 0);
  }

  #count({ numBytes }: Work, sign: 1 | -1): void {
    this.#numWaiting += sign;
    this.#waitingBytes += sign * numBytes;
  }
}

interface Member<Child> {
  readonly child: Child;
  /** Virtual time at which its work so far is finished. */
  finish: number;
}

/** One level of the queue. Mutable. */
class FairShares<Key, Child> {
  readonly #members = new Map<Key, Member<Child>>();
  readonly #createChild: () => Child;
  /** Average service that each present member has received so far. */
  #virtualTime = 0;
  /** Services in a row that a less urgent member waited for. */
  #numOvertaking = 0;

  constructor(createChild: () => Child) {
    this.#createChild = createChild;
  }

  /** In order of arrival. */
  get children(): Child[] {
    return [...this.#members.values()].map(({ child }) => child);
  }

  get(key: Key): Child {
    const known = this.#members.get(key);
    if (known !== undefined) return known.child;
    const member = { child: this.#createChild(), finish: this.#virtualTime };
    this.#members.set(key, member);
    return member.child;
  }

  delete(key: Key): void {
    this.#members.delete(key);
  }

  /**
   * Of the members with the lowest priority value, or of all after `MAX_OVERTAKING_WORK` services, the one whose next
   * work would finish first; among equals, the oldest. There must be a member.
   */
  next(nextCost: (child: Child) => number, priorityOf: (child: Child) => number = noPriority): Member<Child> {
    const members = [...this.#members.values()];
    const lowest = members.reduce((least, { child }) => Math.min(least, priorityOf(child)), Number.POSITIVE_INFINITY);
    const isLimited = this.#numOvertaking < MAX_OVERTAKING_WORK;
    const candidates = isLimited ? members.filter(({ child }) => priorityOf(child) === lowest) : members;
    return largest(candidates, ({ child, finish }) => -(finish + nextCost(child)));
  }

  charge(member: Member<Child>, cost: number, priorityOf: (child: Child) => number = noPriority): void {
    const priority = priorityOf(member.child);
    const isOvertaking = [...this.#members.values()].some(({ child }) => priorityOf(child) > priority);
    this.#numOvertaking = isOvertaking ? this.#numOvertaking + 1 : 0;
    member.finish += cost;
    this.#virtualTime += cost / this.#members.size;
  }
}

function costOfFirst([work]: readonly QueuedWork[]): number {
  return work!.cost;
}

function priorityOfFirst([work]: readonly QueuedWork[]): number {
  return work!.priority ?? 0;
}

function noPriority(): number {
  return 0;
}

/** The first of the elements with the largest value. */
function largest<Element>(elements: readonly Element[], valueOf: (element: Element) => number): Element {
  return elements.reduce((best, element) => (valueOf(element) > valueOf(best) ? element : best));
}

export interface FairWorkersOptions<Work extends QueuedWork, Result> {
  readonly maxNumRunning: number;
  readonly limits: FairQueueLimits;
  /** @param ended Aborted once the result is not needed any more: also after it is there. */
  readonly run: (this: void, work: Work, ended: AbortSignal) => Promise<Result>;
  readonly errors: {
    readonly aborted: (this: void) => EngineError;
    readonly closed: (this: void) => EngineError;
  };
  /** For the error of a full queue: `images`, `processed`. */
  readonly words: { readonly plural: string; readonly done: string };
}

interface Task<Work extends QueuedWork, Result> extends QueuedWork {
  readonly work: Work;
  readonly outcome: PromiseWithResolvers<Result>;
  readonly ending: AbortController;
}

/** Does work in the order of a fair queue, a bounded number of pieces at once. */
export class FairWorkers<Work extends QueuedWork, Result> {
  readonly #options: FairWorkersOptions<Work, Result>;
  readonly #queue: FairQueue<Task<Work, Result>>;
  readonly #closing = new AbortController();
  #numRunning = 0;

  constructor(options: FairWorkersOptions<Work, Result>) {
    this.#options = options;
    this.#queue = new FairQueue(options.limits);
  }

  /**
   * Throws what `run` throws, the errors of the options, and EngineError `queue_full`. A request that is aborted does not
   * wait for work that runs.
   *
   * @param isAdmitted Whether the work follows other work of its request, and is not rejected by a full queue.
   */
  async do(work: Work, signal: AbortSignal, isAdmitted: boolean): Promise<Result> {
    const { errors } = this.#options;
    if (this.#closing.signal.aborted) throw errors.closed();
    if (signal.aborted) throw errors.aborted();
    const outcome = Promise.withResolvers<Result>();
    const ending = new AbortController();
    const { tenant, request, priority = 0, cost, numBytes } = work;
    const task = { tenant, request, priority, cost, numBytes, work, outcome, ending };
    const onAbort = (): void => outcome.reject(errors.aborted());
    const onClose = (): void => outcome.reject(errors.closed());
    signal.addEventListener("abort", onAbort, { once: true });
    this.#closing.signal.addEventListener("abort", onClose, { once: true });
    try {
      if (isAdmitted) this.#queue.addAdmitted(task);
      else for (const removed of this.#queue.add(task)) removed.outcome.reject(this.#queueFull());
      this.#startNext();
      return await outcome.promise;
    } finally {
      this.#queue.remove(task);
      ending.abort();
      signal.removeEventListener("abort", onAbort);
      this.#closing.signal.removeEventListener("abort", onClose);
    }
  }

  /** Rejects waiting and running work as closed. Idempotent. */
  close(): void {
    this.#closing.abort();
  }

  #startNext(): void {
    while (this.#numRunning < this.#options.maxNumRunning) {
      const task = this.#queue.take();
      if (task === null) return;
      this.#numRunning++;
      void this.#run(task).finally(() => {
        this.#numRunning--;
        // Deferred, so that a request whose first work has just ended has its next in the queue before.
        setImmediate(() => this.#startNext());
      });
    }
  }

  async #run({ work, outcome, ending }: Task<Work, Result>): Promise<void> {
    try {
      outcome.resolve(await this.#options.run(work, ending.signal));
    } catch (error) {
      outcome.reject(error);
    }
  }

  #queueFull(): EngineError {
    const { limits, words } = this.#options;
    const { numWaiting, waitingBytes } = this.#queue;
    return new EngineError(
      "queue_full",
      `${numWaiting} ${words.plural} with ${waitingBytes} bytes are waiting to be ${words.done}; the limits are ${limits.maxNumWaiting} ${words.plural} and ${limits.maxWaitingBytes} bytes.`,
    );
  }
}
