/** The engine as the rest of the process sees it: inputs on this thread, the model on one of its own. */
import { randomInt } from "node:crypto";

import { numEmbeddingsOf } from "./core/image-span.ts";
import { EngineThread } from "./engine-thread.ts";
import { EngineError, invariant } from "./errors.ts";
import { RequestOutputs } from "./output-processor.ts";
import type { EngineConfig } from "./config.ts";
import type { EngineCoreStats, FromEngineThread, WorkerOptions } from "./core/messages.ts";
import type { EngineRequest } from "./engine-request.ts";
import type { Engine, EngineDependencies, EngineState, GenerateOptions, ModelInfo } from "./engine.ts";
import type { GenerationRequest } from "./generation-request.ts";
import type { LoadedModel } from "./load-model.ts";
import type { RequestOutput } from "./request-output.ts";

const noStats: EngineCoreStats = {
  numRequestsRunning: 0,
  numRequestsWaiting: 0,
  kvCacheUsage: 0,
  numPromptTokens: 0,
  numGenerationTokens: 0,
  numSteps: 0,
};

/** Seeds that no request gave are drawn below it, from the system's randomness: the most `randomInt` can draw. */
const seedLimit = 2 ** 48 - 1;

/** One request from its admission to its end; mutable. */
class RunningRequest {
  readonly #ended = new AbortController();
  /** Null while the input is processed. */
  outputs: RequestOutputs | null = null;
  /** Whether the engine thread has the sequence and has not reported its end. */
  isInThread = false;

  /** Aborted, with an EngineError, when the request ends before its last output. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  end(error: EngineError): void {
    this.#ended.abort(error);
    this.outputs?.fail(error);
  }
}

/** Mutable; owns the engine thread and the threads that process images. */
export class ThreadedEngine implements Engine {
  readonly ready: Promise<void>;
  readonly #config: EngineConfig;
  readonly #closing = new AbortController();
  /** By the id the engine thread knows, which is never used again: a late output must not meet a namesake. */
  readonly #running = new Map<string, RunningRequest>();
  /** The callers' ids of those that run. */
  readonly #requestIds = new Set<string>();
  /** Sequences the thread is to be told to abort. */
  #toAbort: string[] = [];
  #numAdmitted = 0;
  #state: EngineState = "loading";
  #failure: EngineError | null = null;
  #stats = noStats;
  #model: LoadedModel | null = null;
  #thread: EngineThread | null = null;
  #closed: Promise<void> | null = null;

  constructor(config: EngineConfig, dependencies: EngineDependencies) {
    this.#config = config;
    this.ready = this.#load(dependencies);
    // Who does not wait for it reads `state`.
    this.ready.catch(() => undefined);
  }

  get state(): EngineState {
    return this.#state;
  }

  get modelInfo(): ModelInfo | null {
    return this.#state === "loading" ? null : (this.#model?.modelInfo ?? null);
  }

  get stats(): EngineCoreStats {
    return this.#stats;
  }

  generate(request: GenerationRequest, { signal }: GenerateOptions = {}): AsyncIterable<RequestOutput> {
    const running = new RunningRequest();
    const outputs = this.#generate(request, running, signal);
    const iterator: AsyncIterableIterator<RequestOutput> = {
      [Symbol.asyncIterator]: () => iterator,
      next: () => outputs.next(),
      // A generator would take the end in only after the output that is being waited for.
      return: () => {
        running.end(new EngineError("aborted", "The request's iteration was ended."));
        return outputs.return(undefined);
      },
    };
    return iterator;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #load(dependencies: EngineDependencies): Promise<void> {
    try {
      // Loaded late, so that a process can answer health checks before tokenizers and image decoders are in memory.
      const { loadModel } = await import("./load-model.ts");
      this.#closing.signal.throwIfAborted();
      this.#model = await loadModel(this.#config, dependencies, this.#closing.signal);
      this.#closing.signal.throwIfAborted();
      await this.#startThread(this.#model.workerOptions);
      if (this.#state === "loading") this.#state = "ready";
    } catch (error) {
      const failure = this.#closing.signal.aborted ? closedError() : toEngineError(error);
      this.#fail(failure);
      throw failure;
    }
  }

  /** Resolves when the thread takes requests; rejects when it fails before, or when the engine is closed. */
  async #startThread(options: WorkerOptions): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#closing.signal.addEventListener("abort", () => reject(closedError()), { once: true });
    this.#thread = new EngineThread(options, {
      onReady: resolve,
      onOutputs: (message) => this.#takeOutputs(message),
      onFailed: (error) => {
        reject(error);
        this.#fail(error);
      },
    });
    await promise;
  }

  /** Ends everything with the error, once. */
  #fail(error: EngineError): void {
    if (this.#state === "closed" || this.#state === "failed") return;
    this.#state = "failed";
    this.#failure = error;
    this.#stats = { ...this.#stats, numRequestsRunning: 0, numRequestsWaiting: 0, kvCacheUsage: 0 };
    for (const running of this.#running.values()) running.end(error);
  }

  async #close(): Promise<void> {
    this.#state = "closed";
    this.#closing.abort(closedError());
    for (const running of this.#running.values()) running.end(closedError());
    await this.ready.catch(() => undefined);
    await this.#thread?.close();
    await this.#model?.[Symbol.asyncDispose]();
  }

  async *#generate(
    request: GenerationRequest,
    running: RunningRequest,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<RequestOutput, void, undefined> {
    const { model, thread } = this.#admit(request.requestId);
    this.#numAdmitted += 1;
    const threadRequestId = `${request.requestId}#${this.#numAdmitted}`;
    const onAbort = (): void => {
      running.end(new EngineError("aborted", "The request was aborted.", { cause: signal?.reason }));
    };
    this.#running.set(threadRequestId, running);
    this.#requestIds.add(request.requestId);
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted === true) onAbort();
    try {
      running.ended.throwIfAborted();
      const outputs = await this.#start(request, running, { model, thread, threadRequestId });
      let isLast = false;
      while (!isLast) {
        const output = await outputs.next();
        isLast = output.finishReason !== null;
        yield output;
      }
    } catch (error) {
      throw running.ended.aborted ? running.ended.reason : error;
    } finally {
      signal?.removeEventListener("abort", onAbort);
      this.#running.delete(threadRequestId);
      this.#requestIds.delete(request.requestId);
      if (running.isInThread) this.#abortInThread(threadRequestId);
    }
  }

  /** Throws what a request meets that comes too early, too late, twice, or when too many are here. */
  #admit(requestId: string): { readonly model: LoadedModel; readonly thread: EngineThread } {
    if (this.#state === "loading") throw new EngineError("not_ready", "The model is still loading.");
    if (this.#state === "closed") throw closedError();
    if (this.#failure !== null) {
      throw new EngineError(this.#failure.code, `The engine has failed: ${this.#failure.message}`, {
        cause: this.#failure,
      });
    }
    invariant(this.#model !== null && this.#thread !== null, "a ready engine has a model and a thread");
    const { maxNumSequences, maxNumWaiting } = this.#config;
    if (this.#running.size >= maxNumSequences + maxNumWaiting) {
      throw new EngineError(
        "queue_full",
        `${this.#running.size} requests run or wait; the limits are ${maxNumSequences} and ${maxNumWaiting}.`,
      );
    }
    if (this.#requestIds.has(requestId)) {
      throw new EngineError("invalid_argument", `A request with the id ${requestId} is already running.`, {
        parameter: "requestId",
      });
    }
    return { model: this.#model, thread: this.#thread };
  }

  /** Processes the input and hands the sequence to the engine thread. */
  async #start(
    request: GenerationRequest,
    running: RunningRequest,
    to: { readonly model: LoadedModel; readonly thread: EngineThread; readonly threadRequestId: string },
  ): Promise<RequestOutputs> {
    const { inputProcessor, tokenizer } = to.model;
    const { requestId, samplingParams } = request;
    to.model.checkParams(samplingParams);
    const constraints = await to.model.outputConstraints.resolve(samplingParams, running.ended);
    const prompt = await inputProcessor.process(request, running.ended);
    running.ended.throwIfAborted();
    const engineRequest: EngineRequest = {
      ...prompt,
      ...constraints,
      requestId: to.threadRequestId,
      samplingParams,
      seed: samplingParams.seed ?? randomInt(seedLimit),
    };
    running.outputs = new RequestOutputs({
      requestId,
      samplingParams,
      vocabulary: tokenizer,
      numPromptTokens: prompt.promptTokenIds.length,
      numImageTokens: prompt.images.reduce((sum, image) => sum + numEmbeddingsOf(image), 0),
    });
    running.isInThread = true;
    // Copied, or shared where their memory is: caches keep the tensors of images.
    to.thread.post({ kind: "add", request: engineRequest });
    return running.outputs;
  }

  #takeOutputs({ outputs, stats }: Extract<FromEngineThread, { kind: "outputs" }>): void {
    this.#stats = stats;
    for (const output of outputs) {
      const running = this.#running.get(output.requestId);
      if (running === undefined || running.outputs === null) continue;
      if (output.finishReason !== null) running.isInThread = false;
      if (running.outputs.append(output)) {
        running.isInThread = false;
        this.#abortInThread(output.requestId);
      }
    }
  }

  /** One message for all that end in one turn of the event loop, which may be thousands of clients gone at once. */
  #abortInThread(threadRequestId: string): void {
    this.#toAbort.push(threadRequestId);
    if (this.#toAbort.length > 1) return;
    setImmediate(() => {
      this.#thread?.post({ kind: "abort", requestIds: this.#toAbort });
      this.#toAbort = [];
    });
  }
}

function closedError(): EngineError {
  return new EngineError("closed", "The engine is closed.");
}

function toEngineError(error: unknown): EngineError {
  if (error instanceof EngineError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return new EngineError("internal", `The model could not be loaded: ${reason}`, { cause: error });
}
