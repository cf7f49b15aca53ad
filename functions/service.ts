/** What the routes share: the engine once it is there, the state of the service, the requests under way. */
import { EngineError } from "../engine/index.ts";
import type { Engine, EngineStall } from "../engine/index.ts";

/** `stalled`: a step of the engine does not end; `Service.stall` has more. */
export type ServiceState = "starting" | "ready" | "stalled" | "draining" | "failed";

/** After the deadline, the time for error events to reach clients that still read. */
const FLUSH_MS = 1000;

export interface ServiceOptions {
  /** Requests under way at once; one more is refused before its body is read. */
  readonly maxNumRequests: number;
}

/** Mutable; one per process. */
export class Service {
  readonly #maxNumRequests: number;
  readonly #admissions = new Set<Admission>();
  #numBatchLines = 0;
  #engine: Engine | null = null;
  #hasFailed = false;
  #isDraining = false;
  #notifyIdle: () => void = () => {};
  #released = Promise.withResolvers<void>();

  constructor({ maxNumRequests }: ServiceOptions) {
    this.#maxNumRequests = maxNumRequests;
  }

  /** Null until its modules are loaded; it may still be loading its model after that. */
  get engine(): Engine | null {
    return this.#engine;
  }

  set engine(engine: Engine) {
    this.#engine = engine;
  }

  /** To be called when no engine could be made at all. */
  fail(): void {
    this.#hasFailed = true;
  }

  get state(): ServiceState {
    if (this.#isDraining) return "draining";
    if (this.#hasFailed) return "failed";
    switch (this.#engine?.state) {
      case undefined:
      case "loading":
        return "starting";
      case "ready":
      case "stalled":
        return this.#engine.state;
      case "failed":
      case "closed":
        return "failed";
    }
  }

  /** Null while the engine's steps end in time. */
  get stall(): EngineStall | null {
    return this.#engine?.stall ?? null;
  }

  /** Without lines of batches. */
  get numRequests(): number {
    return this.#admissions.size - this.#numBatchLines;
  }

  /** Resolves when the next request, or line of a batch, is over. */
  whenReleased(): Promise<void> {
    return this.#released.promise;
  }

  /**
   * Counts a request as under way until its admission is released. Throws EngineError `not_ready`, `closed`,
   * `queue_full`, `engine_stalled` or `internal` where the service cannot take it.
   */
  admit(requestSignal: AbortSignal): Admission {
    if (this.numRequests >= this.#maxNumRequests && this.state === "ready") {
      throw new EngineError(
        "queue_full",
        `${this.numRequests} requests are under way; the limit is ${this.#maxNumRequests}.`,
      );
    }
    return this.#admit(requestSignal, () => {});
  }

  /** Counts a line of a batch as under way, as `admit` does a request; batches bound their lines themselves. */
  admitBatchLine(): Admission {
    const admission = this.#admit(new AbortController().signal, () => (this.#numBatchLines -= 1));
    this.#numBatchLines += 1;
    return admission;
  }

  #admit(requestSignal: AbortSignal, onRelease: () => void): Admission {
    const { state } = this;
    const engine = this.#engine;
    if (state === "draining") throw new EngineError("closed", "The service is shutting down; send the request again.");
    if (state === "failed") throw new EngineError("internal", "The engine has failed.");
    if (state === "stalled") {
      throw new EngineError(
        "engine_stalled",
        "The engine has not finished its step in time; send the request again later.",
      );
    }
    if (state === "starting" || engine === null) {
      throw new EngineError("not_ready", "The model is still loading; send the request again shortly.");
    }
    const admission = new Admission(engine, requestSignal, () => {
      if (!this.#admissions.delete(admission)) return;
      onRelease();
      this.#released.resolve();
      this.#released = Promise.withResolvers();
      if (this.#admissions.size === 0) this.#notifyIdle();
    });
    this.#admissions.add(admission);
    return admission;
  }

  /**
   * Refuses new requests and waits for those under way; after `graceMs` they are ended with `closed`. Resolves to
   * whether all of them ended by themselves; lines of batches may be ended, others go on with them.
   */
  async drain(graceMs: number): Promise<boolean> {
    this.#isDraining = true;
    if (await this.#isIdleWithin(graceMs)) return true;
    const isClean = this.numRequests === 0;
    const reason = new EngineError("closed", "The service shut down before the answer was complete.");
    for (const admission of this.#admissions) admission.abort(reason);
    await this.#isIdleWithin(FLUSH_MS);
    return isClean;
  }

  async #isIdleWithin(timeoutMs: number): Promise<boolean> {
    if (this.#admissions.size === 0) return true;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const timer = setTimeout(() => resolve(false), timeoutMs);
    this.#notifyIdle = () => resolve(true);
    const isIdle = await promise;
    clearTimeout(timer);
    return isIdle;
  }
}

/** Why a request whose client has left is aborted. */
export function clientGone(): EngineError {
  return new EngineError("aborted", "The client went away.");
}

/** One request under way. Released exactly when its response is complete or given up. */
export class Admission {
  readonly engine: Engine;
  readonly #controller = new AbortController();
  readonly #requestSignal: AbortSignal;
  readonly #onRelease: () => void;
  readonly #onClientGone = (): void => {
    this.abort(clientGone());
  };

  constructor(engine: Engine, requestSignal: AbortSignal, onRelease: () => void) {
    this.engine = engine;
    this.#requestSignal = requestSignal;
    this.#onRelease = onRelease;
    // A listener instead of AbortSignal.any: nothing is left behind on signals that outlive the request.
    requestSignal.addEventListener("abort", this.#onClientGone, { once: true });
    if (requestSignal.aborted) this.#onClientGone();
  }

  /** Aborted with an EngineError as reason when the client has gone or the service cannot wait any longer. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason: EngineError): void {
    this.#controller.abort(reason);
  }

  /** Frees what still runs; idempotent. */
  release(): void {
    this.#requestSignal.removeEventListener("abort", this.#onClientGone);
    this.abort(new EngineError("aborted", "The request is over."));
    this.#onRelease();
  }
}
