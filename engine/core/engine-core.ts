/** The inner loop of the engine. Sequences join and leave between steps; a step advances all of them. */
import { EngineError } from "../contract/errors.ts";
import type { Scheduler } from "../scheduler/scheduler.ts";
import type { EncoderOutput, EngineCoreOutput, EngineCoreStats, ToEngineThread } from "../thread/messages.ts";
import type { StepProgress } from "../thread/step-progress.ts";
import type { EngineRequest } from "./engine-request.ts";
import type { ModelRunner } from "./model-runner.ts";

export interface EngineCoreParts {
  readonly scheduler: Scheduler;
  readonly runner: ModelRunner;
  /** Returns messages that have arrived since the last call, oldest first, without waiting. */
  readonly takeMessages: () => readonly ToEngineThread[];
  /** Receives the progress of each step. */
  readonly progress: StepProgress;
}

/** Mutable; owns the runner. The engine thread makes all calls, and each returns when its work is done. */
export class EngineCore implements Disposable {
  readonly #scheduler: Scheduler;
  readonly #runner: ModelRunner;
  readonly #takeMessages: () => readonly ToEngineThread[];
  readonly #progress: StepProgress;
  /** Outputs that were created between steps. */
  #pendingOutputs: EngineCoreOutput[] = [];
  #isClosing = false;
  /** Whether the last step had nothing to compute. */
  #isLastStepEmpty = true;
  #hasNewMessages = false;

  constructor({ scheduler, runner, takeMessages, progress }: EngineCoreParts) {
    this.#scheduler = scheduler;
    this.#runner = runner;
    this.#takeMessages = takeMessages;
    this.#progress = progress;
  }

  /** Whether a step would compute or report something, now or when an image is encoded. */
  get hasWork(): boolean {
    return this.#scheduler.hasUnfinished || this.#pendingOutputs.length > 0 || this.isEncoding;
  }

  /**
   * Whether an image is encoded beside the steps. The thread must return to its event loop between two steps then, which
   * reports the end of the encoding.
   */
  get isEncoding(): boolean {
    return this.#runner.imageUnderWay !== null;
  }

  /** Whether the next step computes nothing, unless an image is encoded or a message arrives before. */
  get isWaiting(): boolean {
    return this.isEncoding && this.#isLastStepEmpty && this.#pendingOutputs.length === 0;
  }

  /** Resolves when no image is encoded beside the steps any more. */
  get encodingEnded(): Promise<void> {
    return this.#runner.encodingEnded;
  }

  /** Whether a `close` message has arrived. */
  get isClosing(): boolean {
    return this.#isClosing;
  }

  get stats(): EngineCoreStats {
    return this.#scheduler.stats;
  }

  /** Schedules, runs and samples once. Returns one output for each sequence that got a token or ended. */
  step(): EngineCoreOutput[] {
    this.#progress.beginStep();
    try {
      const failed = this.#runner.collectEncoded();
      if (failed !== null) this.#pendingOutputs.push(...this.#scheduler.failImage(failed.image.mmHash, failed.error));
      this.#hasNewMessages = false;
      let scheduled = this.#scheduler.schedule();
      const results = this.#runner.run(scheduled, () => {
        this.drainMessages();
        scheduled = this.#scheduler.admitLate(scheduled);
        return scheduled;
      });
      this.#progress.enter("scheduling");
      this.drainMessages();
      const { decodes, prefills, transfers } = scheduled;
      // Messages that arrived within the step, and room that it has made, may give the next one something to compute.
      const mayContinue = this.#hasNewMessages || this.#scheduler.hasPreempted;
      this.#isLastStepEmpty = !mayContinue && decodes.length + prefills.length + transfers.length === 0;
      return [...this.#takePendingOutputs(), ...this.#scheduler.update(scheduled, results)];
    } finally {
      this.#progress.endStep();
    }
  }

  /**
   * Begins to copy the image embeddings of the last step, for caches outside the thread. `takeEncoderOutputs` returns them
   * after this or a later step.
   */
  copyEncoderOutputs(): void {
    this.#runner.copyEncoderOutputs();
  }

  /** Image embeddings whose copy has finished since the last call. */
  takeEncoderOutputs(): EncoderOutput[] {
    return this.#runner.copies.takeFinished();
  }

  /** Whether copies wait or run. They finish only while the event loop turns. */
  get isCopying(): boolean {
    return this.#runner.copies.isPending;
  }

  /** Ends the copying; see `EmbeddingCopies.settle`. Await it before the core is disposed of. */
  async settleCopies(): Promise<void> {
    await this.#runner.copies.settle();
  }

  /**
   * Adds new requests and aborts others. An abort frees everything the sequence holds at once, and ends the encoding of an
   * image that no other request has.
   */
  drainMessages(): void {
    for (const message of this.#takeMessages()) {
      this.#hasNewMessages = true;
      switch (message.kind) {
        case "add":
          this.#add(message.request);
          for (const sibling of message.siblings ?? []) this.#add({ ...message.request, ...sibling });
          break;
        case "abort":
          this.#pendingOutputs.push(...this.#scheduler.abort(message.requestIds));
          this.#cancelUnusedImage();
          break;
        case "close":
          this.#isClosing = true;
          break;
        default:
          message satisfies never;
      }
    }
  }

  [Symbol.dispose](): void {
    this.#runner[Symbol.dispose]();
  }

  /** A rejected request ends with an error in the outputs of the next step. */
  #add(request: EngineRequest): void {
    try {
      this.#scheduler.add(request);
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
      this.#pendingOutputs.push(refusalOf(request, error));
    }
  }

  #cancelUnusedImage(): void {
    const image = this.#runner.imageUnderWay;
    if (image !== null && !this.#scheduler.usesImage(image.mmHash)) this.#runner.cancelEncoding();
  }

  #takePendingOutputs(): EngineCoreOutput[] {
    const outputs = this.#pendingOutputs;
    this.#pendingOutputs = [];
    return outputs;
  }
}

function refusalOf({ requestId }: EngineRequest, { code, message }: EngineError): EngineCoreOutput {
  return {
    requestId,
    tokenIds: [],
    logprobs: null,
    finishReason: "error",
    stopReason: null,
    error: { code, message },
    numCachedTokens: 0,
  };
}
