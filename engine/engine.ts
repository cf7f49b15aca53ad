/** The engine as seen by the rest of the process: inputs are processed on this thread, the model runs on others. */
import { untilAborted } from "./concurrent-work.ts";
import type { EngineConfig } from "./contract/config.ts";
import { cudaDeviceIdOf } from "./contract/cuda-device-id.ts";
import { requireDeviceForCopies } from "./contract/data-parallel.ts";
import { defaultEngineLimits } from "./contract/default-limits.ts";
import type {
  Engine,
  EngineDependencies,
  EngineStall,
  EngineState,
  GenerateOptions,
  ModelInfo,
  RenderedPrompt,
  RenderOptions,
} from "./contract/engine.ts";
import { EngineError, invariant } from "./contract/errors.ts";
import type { GenerationRequest, PromptRequest } from "./contract/generation-request.ts";
import type { RequestOutput } from "./contract/request-output.ts";
import type { SamplingParams } from "./contract/sampling-params.ts";
import { timePhase } from "./contract/start-phase.ts";
import { warmUpPrompt } from "./input/warm-up-prompt.ts";
import type { LoadedModel } from "./loading/load-model.ts";
import type { CacheReport } from "./multimodal/caches/multimodal-caches.ts";
import type { RequestTensors } from "./multimodal/held-tensors.ts";
import { renewRandomness } from "./random-ids.ts";
import { checkGenerationRequest, checkPromptRequest, checkTask } from "./request/check-request.ts";
import { prepareSequences } from "./request/prepare-sequences.ts";
import type { PreparedSequences } from "./request/prepare-sequences.ts";
import { aboutCounting, checkTokenIds, toRequestError } from "./request/request-errors.ts";
import { RequestRegistry, RunningRequest } from "./request/request-registry.ts";
import { RequestStages } from "./request/request-stages.ts";
import { collectGarbage } from "./runtime/collect-garbage.ts";
import { findRefusal } from "./sampling/custom/processor-loading.ts";
import type { ProcessorRefusal } from "./sampling/custom/processor-loading.ts";
import type { EngineThread } from "./thread/engine-thread.ts";
import { EngineThreads } from "./thread/engine-threads.ts";
import type { EngineCoreStats, FromEngineThread } from "./thread/messages.ts";
import type { StepStall } from "./thread/step-progress.ts";
import { noStats } from "./thread/total-stats.ts";

/** The sequences of an admitted request, and where they run. */
interface SequencesToStart {
  readonly model: LoadedModel;
  readonly threads: EngineThreads;
  readonly sequenceIds: readonly string[];
  /** Null for a text-only model. */
  readonly tensors: RequestTensors | null;
}

/** Mutable. Owns the engine threads and the threads that process images. */
export class ThreadedEngine implements Engine {
  readonly ready: Promise<void>;
  readonly #config: EngineConfig;
  readonly #requests = new RequestRegistry();
  readonly #closing = new AbortController();
  /** Ends loading: a thread has failed, for example because there is no GPU. */
  readonly #threadFailed = new AbortController();
  #state: EngineState = "loading";
  #failure: EngineError | null = null;
  readonly #onStall: EngineDependencies["onStall"];
  readonly #onFailed: EngineDependencies["onFailed"];
  #stats = noStats;
  #model: LoadedModel | null = null;
  #threads: EngineThreads | null = null;
  /** Those of threads whose step takes too long. */
  readonly #stalls = new Map<EngineThread, EngineStall>();
  #closed: Promise<void> | null = null;

  constructor(config: EngineConfig, dependencies: EngineDependencies) {
    this.#config = config;
    this.#onStall = dependencies.onStall;
    this.#onFailed = dependencies.onFailed;
    this.ready = this.#load(dependencies);
    // Callers that do not await it read `state`.
    this.ready.catch(() => undefined);
  }

  get state(): EngineState {
    return this.#state;
  }

  get failure(): EngineError | null {
    return this.#failure;
  }

  get stall(): EngineStall | null {
    const stalls = [...this.#stalls.values()];
    return stalls.find(({ isLasting }) => isLasting) ?? stalls[0] ?? null;
  }

  get modelInfo(): ModelInfo | null {
    return this.#state === "loading" ? null : (this.#model?.modelInfo ?? null);
  }

  get stats(): EngineCoreStats {
    return this.#stats;
  }

  get caches(): CacheReport | null {
    return this.#model?.caches.report ?? null;
  }

  refusalOf(params: SamplingParams): ProcessorRefusal | null {
    return this.#model === null ? null : findRefusal(this.#model.logitsProcessors, params);
  }

  generate(request: GenerationRequest, options: GenerateOptions = {}): AsyncIterable<RequestOutput> {
    const running = new RunningRequest();
    const outputs = this.#generate(request, running, options);
    const iterator: AsyncIterableIterator<RequestOutput> = {
      [Symbol.asyncIterator]: () => iterator,
      next: () => outputs.next(),
      // A generator would handle `return` only after the output that it is waiting for.
      return: () => {
        running.end(new EngineError("aborted", "The request's iteration was ended."));
        return outputs.return(undefined);
      },
    };
    return iterator;
  }

  async render(
    request: PromptRequest,
    { signal, exceedsModelLen = false }: RenderOptions = {},
  ): Promise<RenderedPrompt> {
    checkPromptRequest(request);
    const { model } = this.#admit(null, 1);
    const running = new RunningRequest();
    using tensors = model.inputProcessor.openTensors(request);
    endIfRefused(running, tensors);
    this.#requests.startRendering(running);
    const stopListening = running.endWith(signal);
    try {
      running.ended.throwIfAborted();
      const inputProcessor = exceedsModelLen ? model.promptCounter : model.inputProcessor;
      const { promptTokenIds, images } = await inputProcessor.process(request, running.ended, tensors);
      return {
        tokenIds: promptTokenIds,
        images: images.map(({ modality, mmHash, placeholder: { offset, length } }) => ({
          modality,
          mmHash,
          offset,
          length,
        })),
      };
    } catch (error) {
      if (running.ended.aborted) throw running.ended.reason;
      const failure = toRequestError(error);
      throw exceedsModelLen ? aboutCounting(failure) : failure;
    } finally {
      stopListening();
      this.#requests.endRendering(running);
    }
  }

  async detokenize(tokenIds: readonly number[]): Promise<string> {
    const { model } = this.#admit(null, 1);
    checkTokenIds(tokenIds, model.modelInfo.vocabSize);
    return model.tokenizer.detokenize(tokenIds);
  }

  tokensOf(tokenIds: readonly number[]): readonly string[] | null {
    const tokenizer = this.#model?.tokenizer;
    return tokenizer === undefined ? null : tokenIds.map((tokenId) => tokenizer.token(tokenId) ?? "");
  }

  async disconnect(): Promise<void> {
    await this.#model?.caches.disconnect();
  }

  async reconnect(): Promise<void> {
    renewRandomness();
    await this.#model?.caches.connect();
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  /** Of this thread: the others warm up the model. */
  async #warmUp({ inputProcessor, modelInfo }: LoadedModel, signal: AbortSignal): Promise<void> {
    if (this.#config.warmUp === true) await warmUpPrompt(inputProcessor, modelInfo.hasChatTemplate, signal);
  }

  async #load(dependencies: EngineDependencies): Promise<void> {
    const ready = Promise.withResolvers<void>();
    ready.promise.catch(() => undefined);
    try {
      requireDeviceForCopies(this.#config);
      const threads = this.#startThreads(ready, dependencies);
      // Imported late, so that the process answers health checks before tokenizers and image decoders are in memory.
      const { loadModel } = await timePhase("modules", dependencies.onPhase, () => import("./loading/load-model.ts"));
      this.#closing.signal.throwIfAborted();
      const signal = AbortSignal.any([this.#closing.signal, this.#threadFailed.signal]);
      this.#model = await withinGrace(loadModel(this.#config, dependencies, signal), signal);
      signal.throwIfAborted();
      threads.load(this.#model.workerOptions);
      // Parsed files and graphs under construction are garbage now, and this thread is idle.
      await Promise.all([ready.promise, this.#warmUp(this.#model, signal).then(collectGarbage)]);
      if (this.#state === "loading") this.#state = "ready";
    } catch (error) {
      const failure = this.#closing.signal.aborted ? closedError() : (this.#failure ?? toEngineError(error));
      this.#fail(failure);
      await this.#threads?.close().catch(() => undefined);
      throw failure;
    }
  }

  /**
   * `ready` resolves when all threads accept requests. It rejects if one fails before, or if the engine is closed.
   */
  #startThreads(
    { resolve, reject }: PromiseWithResolvers<void>,
    { onPhase = () => {}, onDevice = () => {} }: Pick<EngineDependencies, "onPhase" | "onDevice">,
  ): EngineThreads {
    this.#closing.signal.addEventListener("abort", () => reject(closedError()), { once: true });
    const config = this.#config;
    this.#threads = new EngineThreads(
      {
        onPhase,
        onDevice,
        onReady: () => {
          this.#readStats();
          resolve();
        },
        onOutputs: (message) => this.#takeOutputs(message),
        onEncoded: (images) => {
          const entries = images.map(({ mmHash, embeddings }) => ({ key: mmHash, value: embeddings }));
          this.#model?.caches.encoder.setMany(entries);
        },
        onStall: (stall, thread) => this.#takeStall(stall, thread),
        onFailed: (error) => {
          reject(error);
          const wasReady = this.#state === "ready" || this.#state === "stalled";
          this.#fail(error);
          this.#threadFailed.abort(error);
          if (wasReady) this.#onFailed?.(error);
        },
      },
      {
        stepTimeoutMs: config.stepTimeoutMs ?? defaultEngineLimits.stepTimeoutMs,
        cudaDeviceId: cudaDeviceIdOf(config),
        reusesPrefixes: config.enablePrefixCaching ?? true,
      },
    );
    return this.#threads;
  }

  /** Ends the requests of a step that does not end here, because the thread cannot. */
  #takeStall(stall: StepStall | null, thread: EngineThread): void {
    if (this.#state !== "ready" && this.#state !== "stalled") return;
    if (stall === null) this.#stalls.delete(thread);
    else this.#stalls.set(thread, this.#describeStall(stall));
    const current = this.stall;
    this.#state = current === null ? "ready" : "stalled";
    this.#onStall?.(current);
    const own = this.#stalls.get(thread);
    if (own?.isLasting === true) this.#requests.endRunning(stalledError(own), thread);
  }

  #describeStall({ elapsedMs, activity, isLasting }: StepStall): EngineStall {
    const seen = { seconds: elapsedMs / 1000, numRequests: this.#requests.numRunning, isLasting };
    if (activity.kind !== "processor") return { ...seen, activity: activity.kind, logitsProcessor: null };
    const reference = this.#model?.workerOptions.config.logitsProcessors[activity.index];
    invariant(reference !== undefined, `a logits processor at position ${activity.index}`);
    const { className, name = className } = reference;
    return { ...seen, activity: "logits processor", logitsProcessor: { name, className } };
  }

  /** Ends everything with the error. Later calls do nothing. */
  #fail(error: EngineError): void {
    if (this.#state === "closed" || this.#state === "failed") return;
    this.#state = "failed";
    this.#stalls.clear();
    this.#failure = error;
    this.#stats = { ...this.#stats, numRequestsRunning: 0, numRequestsWaiting: 0, kvCacheUsage: 0 };
    this.#requests.endAll(error);
  }

  async #close(): Promise<void> {
    this.#state = "closed";
    this.#stalls.clear();
    this.#closing.abort(closedError());
    this.#requests.endAll(closedError());
    await this.ready.catch(() => undefined);
    try {
      await this.#threads?.close();
    } finally {
      await this.#model?.[Symbol.asyncDispose]();
    }
  }

  async *#generate(
    request: GenerationRequest,
    running: RunningRequest,
    { signal, onQueued }: GenerateOptions,
  ): AsyncGenerator<RequestOutput, void, undefined> {
    checkGenerationRequest(request);
    const { numChoices = 1 } = request;
    const { model, threads } = this.#admit(request.requestId, numChoices);
    checkTask(request, model.modelInfo.task);
    const sequenceIds = this.#requests.start(request.requestId, running, numChoices);
    using tensors = model.inputProcessor.openTensors(request);
    endIfRefused(running, tensors);
    const stopListening = running.endWith(signal);
    try {
      running.ended.throwIfAborted();
      const { outputs, figures } = await this.#start(request, running, { model, threads, sequenceIds, tensors });
      onQueued?.(figures, numChoices);
      for (let numOpen = numChoices; numOpen > 0;) {
        const output = await outputs.next();
        // The prompt is computed. No more requests run than memory is planned for.
        tensors?.[Symbol.dispose]();
        if (output.finishReason !== null) numOpen -= 1;
        yield output;
      }
    } catch (error) {
      throw running.ended.aborted ? running.ended.reason : toRequestError(error);
    } finally {
      stopListening();
      running.stages?.end();
      this.#requests.end(request.requestId, running, sequenceIds);
    }
  }

  /** Throws if the engine is not ready, the id is in use, or the queue is full. Null for a request without an id. */
  #admit(requestId: string | null, numChoices: number): Pick<SequencesToStart, "model" | "threads"> {
    if (this.#state === "loading") throw new EngineError("not_ready", "The model is still loading.");
    if (this.#state === "closed") throw closedError();
    const { stall } = this;
    if (stall !== null) throw stalledError(stall);
    if (this.#failure !== null) {
      throw new EngineError(this.#failure.code, `The engine has failed: ${this.#failure.message}`, {
        cause: this.#failure,
      });
    }
    invariant(this.#model !== null && this.#threads !== null, "a ready engine has a model and threads");
    const { maxNumWaiting } = this.#config;
    const { maxNumSequences } = this.#model.modelInfo;
    const maxNumRunning = maxNumSequences + maxNumWaiting;
    if (!Number.isInteger(numChoices) || numChoices < 1) {
      throw new EngineError("invalid_argument", `numChoices must be at least 1, got ${numChoices}.`, {
        parameter: "numChoices",
      });
    }
    if (numChoices > maxNumRunning) {
      throw new EngineError(
        "invalid_argument",
        `numChoices must be at most ${maxNumRunning}, the number of sequences that can run or wait, got ${numChoices}.`,
        { parameter: "numChoices", setting: "maxNumWaiting" },
      );
    }
    if (this.#requests.numSequences + numChoices > maxNumRunning) {
      const asked = numChoices === 1 ? "" : `, and this request asks for ${numChoices} choices`;
      throw new EngineError(
        "queue_full",
        `${this.#requests.numSequences} sequences run or wait${asked}; the limits are ${maxNumSequences} and ${maxNumWaiting}.`,
        { setting: "maxNumWaiting" },
      );
    }
    if (requestId !== null && this.#requests.has(requestId)) {
      throw new EngineError("invalid_argument", `A request with the id ${requestId} is already running.`, {
        parameter: "requestId",
      });
    }
    return { model: this.#model, threads: this.#threads };
  }

  /** Processes the input once and passes the sequences to an engine thread. */
  async #start(
    request: GenerationRequest,
    running: RunningRequest,
    { model, threads, sequenceIds, tensors }: SequencesToStart,
  ): Promise<Pick<PreparedSequences, "outputs" | "figures">> {
    const { outputs, figures, message } = await prepareSequences(request, model, sequenceIds, running.ended, tensors);
    running.ended.throwIfAborted();
    running.outputs = outputs;
    const thread = threads.choose(message.request);
    this.#requests.send(running, thread, sequenceIds);
    if (request.onStage !== undefined) running.stages = new RequestStages(request.onStage, sequenceIds.length);
    // The request may take the place of one that has just been aborted.
    this.#requests.postAborts();
    // Tensors are copied, or shared if they are in shared memory: caches keep the tensors of images.
    thread.post(message);
    return { outputs, figures };
  }

  #takeOutputs({ outputs }: Extract<FromEngineThread, { kind: "outputs" }>): void {
    // Other threads go on until they are closed.
    if (this.#state === "failed") return;
    this.#readStats();
    this.#requests.take(outputs);
  }

  #readStats(): void {
    invariant(this.#threads !== null, "threads report to the engine that has started them");
    this.#stats = this.#threads.stats;
  }
}

/** Others need the memory of its pictures. */
function endIfRefused(running: RunningRequest, tensors: RequestTensors | null): void {
  tensors?.refused.addEventListener("abort", () => running.end(tensors.refused.reason as EngineError), { once: true });
}

function stalledError({ seconds }: EngineStall): EngineError {
  return new EngineError(
    "engine_stalled",
    `One step of the engine has taken ${Math.floor(seconds)} s and has not ended. Send the request again later.`,
  );
}

/**
 * A load that is aborted ends at its next step and frees what it has. It is no longer waited for after this time: modules
 * of users, such as pipelines and logits processors, do not see the signal and may never end.
 */
const LOAD_GRACE_MS = 2000;

/** Rejects with the reason of `signal` if `loading` has not ended by `LOAD_GRACE_MS` after the abort. */
async function withinGrace(loading: Promise<LoadedModel>, signal: AbortSignal): Promise<LoadedModel> {
  const abandoned = new AbortController();
  let grace: NodeJS.Timeout | undefined;
  const onAbort = (): void => {
    grace = setTimeout(() => {
      abandoned.abort(signal.reason);
      void loading.then((model) => model[Symbol.asyncDispose]()).catch(() => {});
    }, LOAD_GRACE_MS);
  };
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  try {
    return await untilAborted(loading, abandoned.signal);
  } finally {
    clearTimeout(grace);
    signal.removeEventListener("abort", onAbort);
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
