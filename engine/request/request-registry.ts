/** The requests that run or render their prompt, each until its end, and the sequences that engine threads compute for them. */
import { EngineError } from "../contract/errors.ts";
import type { RequestOutputs } from "../output/output-processor.ts";
import type { EngineThread } from "../thread/engine-thread.ts";
import type { EngineCoreOutput } from "../thread/messages.ts";
import type { RequestStages } from "./request-stages.ts";

/** One request from its admission to its end, whether it generates or only renders its prompt. Mutable. */
export class RunningRequest {
  readonly #ended = new AbortController();
  /** Null while the input is processed. */
  outputs: RequestOutputs | null = null;
  /** Null without an observer, and before the request is in the engine thread. */
  stages: RequestStages | null = null;
  /** Null before it is sent to one. */
  thread: EngineThread | null = null;
  /** Ids of its sequences that the engine thread holds and has not reported as ended. */
  readonly inThread = new Set<string>();

  /** Aborted, with an EngineError, when the request ends before its last output. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  end(error: EngineError): void {
    this.#ended.abort(error);
    this.outputs?.fail(error);
  }

  /** Ends with the signal. Returns a function that stops listening. */
  endWith(signal: AbortSignal | undefined): () => void {
    const onAbort = (): void => {
      this.end(new EngineError("aborted", "The request was aborted.", { cause: signal?.reason }));
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted === true) onAbort();
    return () => signal?.removeEventListener("abort", onAbort);
  }
}

/** One of the sequences of a request. */
interface RunningSequence {
  readonly request: RunningRequest;
  readonly index: number;
}

/** Mutable. */
export class RequestRegistry {
  /** By the engine threads' ids, which are never reused, so a late output cannot reach another request. */
  readonly #sequences = new Map<string, RunningSequence>();
  readonly #rendering = new Set<RunningRequest>();
  /** The callers' ids of running requests. */
  readonly #requestIds = new Set<string>();
  /** Sequences that the next message to each thread aborts. */
  readonly #toAbort = new Map<EngineThread, string[]>();
  #numStarted = 0;

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

  /** Returns the engine threads' ids for the request's sequences. */
  start(requestId: string, request: RunningRequest, numChoices: number): readonly string[] {
    this.#numStarted += 1;
    const sequenceIds = Array.from({ length: numChoices }, (_, index) => `${requestId}#${this.#numStarted}.${index}`);
    for (const [index, sequenceId] of sequenceIds.entries()) this.#sequences.set(sequenceId, { request, index });
    this.#requestIds.add(requestId);
    // At once, because its reader may be busy with an earlier output.
    request.ended.addEventListener("abort", () => this.#endInThread(request), { once: true });
    return sequenceIds;
  }

  /** The thread computes the sequences from now on. */
  send(request: RunningRequest, thread: EngineThread, sequenceIds: readonly string[]): void {
    request.thread = thread;
    thread.numSequences += sequenceIds.length;
    for (const sequenceId of sequenceIds) request.inThread.add(sequenceId);
  }

  /** Forgets the request, and aborts what the thread still computes of it. */
  end(requestId: string, request: RunningRequest, sequenceIds: readonly string[]): void {
    if (request.thread !== null) request.thread.numSequences -= sequenceIds.length;
    for (const sequenceId of sequenceIds) this.#sequences.delete(sequenceId);
    this.#requestIds.delete(requestId);
    this.#endInThread(request);
  }

  /** Ends running requests with the error: those that were sent to the thread or to none yet, or all without a thread. */
  endRunning(error: EngineError, thread: EngineThread | null = null): void {
    for (const { request } of this.#sequences.values()) {
      if (thread === null || request.thread === null || request.thread === thread) request.end(error);
    }
  }

  /** Also those that only render a prompt. */
  endAll(error: EngineError): void {
    this.endRunning(error);
    for (const request of this.#rendering) request.end(error);
  }

  /** Passes outputs of an engine thread to their requests. */
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
        this.#abortInThread(request.thread, output.requestId);
      }
    }
  }

  /** Sends the aborts that wait for the next turn of the event loop. */
  postAborts(): void {
    for (const [thread, requestIds] of this.#toAbort) thread.post({ kind: "abort", requestIds });
    this.#toAbort.clear();
  }

  #endInThread({ thread, inThread }: RunningRequest): void {
    for (const sequenceId of inThread) this.#abortInThread(thread, sequenceId);
    inThread.clear();
  }

  /** Sends one message for all aborts in one turn of the event loop: thousands of clients may disconnect at once. */
  #abortInThread(thread: EngineThread | null, sequenceId: string): void {
    if (thread === null) return;
    if (this.#toAbort.size === 0) setImmediate(() => this.postAborts());
    const waiting = this.#toAbort.get(thread);
    if (waiting === undefined) this.#toAbort.set(thread, [sequenceId]);
    else waiting.push(sequenceId);
  }
}
