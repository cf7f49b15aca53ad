/** The requests that run or render their prompt, and the sequences that the engine thread computes for them. */
import type { EngineError } from "../contract/errors.ts";
import type { EngineCoreOutput } from "../thread/messages.ts";
import type { RunningRequest } from "./running-request.ts";

/** One of the sequences of a request. */
interface RunningSequence {
  readonly request: RunningRequest;
  readonly index: number;
}

/** Mutable. */
export class RequestRegistry {
  readonly #abort: (sequenceIds: readonly string[]) => void;
  /** By the engine thread's ids, which are never reused, so a late output cannot reach another request. */
  readonly #sequences = new Map<string, RunningSequence>();
  readonly #rendering = new Set<RunningRequest>();
  /** The callers' ids of running requests. */
  readonly #requestIds = new Set<string>();
  /** Sequences that the next message to the thread aborts. */
  #toAbort: string[] = [];
  #numStarted = 0;

  /** @param abort Aborts sequences in the engine thread, if there is one. */
  constructor(abort: (sequenceIds: readonly string[]) => void) {
    this.#abort = abort;
  }

  /** Without those that only render. */
  get numRunning(): number {
    return this.#requestIds.size;
  }

  /** Sequences of running requests, and requests that only render, which count as one. */
  get numSequences(): number {
    return this.#sequences.size + this.#rendering.size;
  }

  /** Whether a request with the caller's id runs. */
  has(requestId: string): boolean {
    return this.#requestIds.has(requestId);
  }

  startRendering(request: RunningRequest): void {
    this.#rendering.add(request);
  }

  endRendering(request: RunningRequest): void {
    this.#rendering.delete(request);
  }

  /** Returns the engine thread's ids for the request's sequences. */
  start(requestId: string, request: RunningRequest, numChoices: number): readonly string[] {
    this.#numStarted += 1;
    const sequenceIds = Array.from({ length: numChoices }, (_, index) => `${requestId}#${this.#numStarted}.${index}`);
    for (const [index, sequenceId] of sequenceIds.entries()) this.#sequences.set(sequenceId, { request, index });
    this.#requestIds.add(requestId);
    // At once, because its reader may be busy with an earlier output.
    request.ended.addEventListener("abort", () => this.#endInThread(request), { once: true });
    return sequenceIds;
  }

  /** Forgets the request, and aborts what the thread still computes of it. */
  end(requestId: string, request: RunningRequest, sequenceIds: readonly string[]): void {
    for (const sequenceId of sequenceIds) this.#sequences.delete(sequenceId);
    this.#requestIds.delete(requestId);
    this.#endInThread(request);
  }

  /** Ends running requests with the error. */
  endRunning(error: EngineError): void {
    for (const { request } of this.#sequences.values()) request.end(error);
  }

  /** Also those that only render a prompt. */
  endAll(error: EngineError): void {
    this.endRunning(error);
    for (const request of this.#rendering) request.end(error);
  }

  /** Passes outputs of the engine thread to their requests. */
  take(outputs: readonly EngineCoreOutput[]): void {
    for (const output of outputs) {
      const sequence = this.#sequences.get(output.requestId);
      if (sequence === undefined || sequence.request.outputs === null) continue;
      const { request, index } = sequence;
      if (output.finishReason !== null) request.inThread.delete(output.requestId);
      // After a stop string, the thread computes tokens until it has read the abort.
      if (sequence.request.outputs.hasEnded(index)) continue;
      const isEndedHere = sequence.request.outputs.append(output, index);
      request.stages?.take(output, isEndedHere);
      if (isEndedHere) {
        request.inThread.delete(output.requestId);
        this.#abortInThread(output.requestId);
      }
    }
  }

  /** Sends the aborts that wait for the next turn of the event loop. */
  postAborts(): void {
    if (this.#toAbort.length === 0) return;
    this.#abort(this.#toAbort);
    this.#toAbort = [];
  }

  #endInThread({ inThread }: RunningRequest): void {
    for (const sequenceId of inThread) this.#abortInThread(sequenceId);
    inThread.clear();
  }

  /** Sends one message for all aborts in one turn of the event loop: thousands of clients may disconnect at once. */
  #abortInThread(sequenceId: string): void {
    this.#toAbort.push(sequenceId);
    if (this.#toAbort.length === 1) setImmediate(() => this.postAborts());
  }
}
