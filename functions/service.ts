/** State shared by the routes: the engine once it is loaded, the state of the service, and the requests in progress. */
import { EngineError } from "../engine/index.ts";
import type { Engine, EngineStall } from "../engine/index.ts";

/** `stalled`: a step of the engine does not end; see `Service.stall`. */
export type ServiceState = "starting" | "ready" | "stalled" | "draining" | "failed";

/** Time after the deadline for error events to reach clients that are still reading. */
const FLUSH_MS = 1000;

export interface ServiceOptions {
  /** Maximum number of requests in the engine. */
  readonly maxNumRequests: number;
  /** How long requests wait for a model that is still loading. Default 0. */
  readonly holdMs?: number;
}

/** Mutable; one per process. */
export class Service {
  readonly #maxNumRequests: number;
  readonly #holdMs: number;
  #numHeld = 0;
  /** Resolves when the service is not starting any more. */
  #started = Promise.withResolvers<void>();
  #isQuiesced = false;
  readonly #admissions = new Set<Admission>();
  #numBatchLines = 0;
  #engine: Engine | null = null;
  #hasFailed = false;
  readonly #draining = new AbortController();
  #released = Promise.withResolvers<void>();
  #requestEnded = Promise.withResolvers<void>();

  constructor({ maxNumRequests, holdMs = 0 }: ServiceOptions) {
    this.#maxNumRequests = maxNumRequests;
    this.#holdMs = holdMs;
    this.drainSignal.addEventListener("abort", () => this.#started.resolve(), { once: true });
  }

  /** Null until its modules are loaded. Its model may still be loading afterwards. */
  get engine(): Engine | null {
    return this.#engine;
  }

  set engine(engine: Engine) {
    this.#engine = engine;
    const notify = (): void => this.#started.resolve();
    engine.ready.then(notify, notify);
  }

  /** Call it when no engine can be created. */
  fail(): void {
    this.#hasFailed = true;
    this.#started.resolve();
  }

  /** Quiesced counts as starting: requests are not served yet, and will be. */
  get state(): ServiceState {
    if (this.isDeviceLost) return "failed";
    if (this.drainSignal.aborted) return "draining";
    if (this.#hasFailed) return "failed";
    switch (this.#engine?.state) {
      case undefined:
      case "loading":
        return "starting";
      case "ready":
        return this.#isQuiesced ? "starting" : "ready";
      case "stalled":
        return "stalled";
      case "failed":
      case "closed":
        return "failed";
    }
  }

  /** Whether lines and jobs that end now go back to where they came from, because others continue them. */
  get givesWorkBack(): boolean {
    return this.#isQuiesced || this.state === "draining";
  }

  /** Aborted with EngineError `closed` when a drain starts, for work that the drain does not wait for. */
  get drainSignal(): AbortSignal {
    return this.#draining.signal;
  }

  /** Whether the process computes nothing any more until it is started again, whatever else it does. */
  get isDeviceLost(): boolean {
    return this.#engine?.failure?.code === "device_lost";
  }

  /** Null while the engine's steps end in time. */
  get stall(): EngineStall | null {
    return this.#engine?.stall ?? null;
  }

  /** Requests in progress, without lines of batches. */
  get numRequests(): number {
    return this.#admissions.size - this.#numBatchLines;
  }

  /** Whether requests wait while the model loads. */
  get holdsRequests(): boolean {
    return this.#holdMs > 0;
  }

  /** Whether neither a request nor a line of a batch is in progress. */
  get isIdle(): boolean {
    return this.#admissions.size === 0;
  }

  /** Requests that wait for the model to load. */
  get numHeld(): number {
    return this.#numHeld;
  }

  /**
   * While the model loads, resolves when it is ready, when it cannot be loaded, when the service drains, when the caller
   * leaves, or after the time that the settings allow; otherwise at once. `admit` then says which. Throws EngineError
   * `queue_full` if as many requests wait as can be in progress.
   */
  async waitForStart(requestSignal: AbortSignal): Promise<void> {
    if (!this.holdsRequests || this.state !== "starting" || requestSignal.aborted) return;
    if (this.#numHeld >= this.#maxNumRequests) {
      throw new EngineError(
        "queue_full",
        `${this.#numHeld} requests wait for the model to load; the limit is ${this.#maxNumRequests}.`,
        { setting: "maxNumWaiting" },
      );
    }
    const ended = Promise.withResolvers<void>();
    const timer = setTimeout(ended.resolve, this.#holdMs);
    const onGone = (): void => ended.resolve();
    requestSignal.addEventListener("abort", onGone, { once: true });
    this.#numHeld += 1;
    try {
      await Promise.race([this.#started.promise, ended.promise]);
    } finally {
      this.#numHeld -= 1;
      clearTimeout(timer);
      requestSignal.removeEventListener("abort", onGone);
    }
  }

  /** Resolves when the next request or batch line ends. */
  whenReleased(): Promise<void> {
    return this.#released.promise;
  }

  /** Resolves when the next request ends; batch lines do not count. */
  whenRequestEnds(): Promise<void> {
    return this.#requestEnded.promise;
  }

  /** Throws like `admit`, without taking a place. Call it before a body is read. */
  checkRoom(): void {
    this.#requireEngine();
    if (this.numRequests < this.#maxNumRequests) return;
    throw new EngineError(
      "queue_full",
      `${this.numRequests} requests are in progress; the limit is ${this.#maxNumRequests}.`,
      { setting: "maxNumWaiting" },
    );
  }

  /**
   * Counts a request as in progress until its admission is released. Call it after the body is read, because a sender
   * may be slow. Throws EngineError `not_ready`, `closed`, `queue_full`, `engine_stalled`, `device_lost` or `internal` if
   * the service cannot accept the request.
   */
  admit(requestSignal: AbortSignal): Admission {
    this.checkRoom();
    return this.#admit(requestSignal, () => {
      this.#requestEnded.resolve();
      this.#requestEnded = Promise.withResolvers();
    });
  }

  /** Counts a line of a batch, or a job, as in progress. Their senders limit their number themselves. */
  admitBatchLine(signal: AbortSignal = new AbortController().signal): Admission {
    const admission = this.#admit(signal, () => (this.#numBatchLines -= 1));
    this.#numBatchLines += 1;
    return admission;
  }

  /** Throws like `admit` while requests are not served. */
  requireReady(): void {
    this.#requireEngine();
  }

  #requireEngine(): Engine {
    const { state } = this;
    if (state === "draining") throw this.drainSignal.reason;
    if (this.isDeviceLost) {
      throw new EngineError("device_lost", "The GPU of this process is lost; send the request again.");
    }
    if (state === "failed") throw new EngineError("internal", "The engine has failed.");
    if (state === "stalled") {
      throw new EngineError(
        "engine_stalled",
        "The engine has not finished its step in time. Send the request again later.",
      );
    }
    if (this.#isQuiesced) {
      throw new EngineError("not_ready", "The service is quiesced for a snapshot. Send the request again shortly.");
    }
    if (state === "starting" || this.#engine === null) {
      throw new EngineError("not_ready", "The model is still loading. Send the request again shortly.");
    }
    return this.#engine;
  }

  #admit(requestSignal: AbortSignal, onRelease: () => void): Admission {
    const engine = this.#requireEngine();
    const admission = new Admission(engine, requestSignal, () => {
      if (!this.#admissions.delete(admission)) return;
      onRelease();
      this.#released.resolve();
      this.#released = Promise.withResolvers();
    });
    this.#admissions.add(admission);
    return admission;
  }

  /**
   * Rejects new requests and waits for those in progress. After `graceMs` it ends them with `closed`. Resolves to
   * whether all requests ended by themselves; batch lines do not count, because another run resumes them.
   */
  async drain(graceMs: number): Promise<boolean> {
    this.#draining.abort(new EngineError("closed", "The service is shutting down. Send the request again."));
    return this.#endAdmissions(graceMs, "The service shut down before the answer was complete.");
  }

  /** Like `drain`, until `resume`: requests are then answered, or held, as while the model loads. */
  async quiesce(graceMs: number): Promise<boolean> {
    this.#isQuiesced = true;
    this.#started = Promise.withResolvers();
    return this.#endAdmissions(graceMs, "The service was quiesced before the answer was complete.");
  }

  resume(): void {
    this.#isQuiesced = false;
    this.#started.resolve();
  }

  async #endAdmissions(graceMs: number, message: string): Promise<boolean> {
    if (await this.#isIdleWithin(graceMs)) return true;
    const isClean = this.numRequests === 0;
    const reason = new EngineError("closed", message);
    for (const admission of this.#admissions) admission.abort(reason);
    await this.#isIdleWithin(FLUSH_MS);
    return isClean;
  }

  async #isIdleWithin(timeoutMs: number): Promise<boolean> {
    const late = Promise.withResolvers<"late">();
    const timer = setTimeout(() => late.resolve("late"), timeoutMs);
    while (this.#admissions.size > 0) {
      if ((await Promise.race([this.#released.promise, late.promise])) === "late") break;
    }
    clearTimeout(timer);
    return this.#admissions.size === 0;
  }
}

/** The reason for aborting a request whose client has disconnected. */
export function clientGone(): EngineError {
  return new EngineError("aborted", "The client disconnected.");
}

/** One request in progress. It is released when its response is complete or abandoned. */
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
    // A listener instead of AbortSignal.any, which would leave listeners on signals that outlive the request.
    requestSignal.addEventListener("abort", this.#onClientGone, { once: true });
    if (requestSignal.aborted) this.#onClientGone();
  }

  /** Aborted with an EngineError as reason when the client has disconnected or the service cannot wait any longer. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason: EngineError): void {
    this.#controller.abort(reason);
  }

  /** Ends running work. Idempotent. */
  release(): void {
    this.#requestSignal.removeEventListener("abort", this.#onClientGone);
    this.abort(new EngineError("aborted", "The request is over."));
    this.#onRelease();
  }
}
