/** The inner loop of the engine: sequences join and leave between steps, each step gives every one its share. */
import { EngineError } from "../contract/errors.ts";
import type { EngineRequest } from "./engine-request.ts";
import type { EncodedImage, EngineCoreOutput, EngineCoreStats, ToEngineThread } from "../thread/messages.ts";
import type { ModelRunner } from "./model-runner.ts";
import type { Scheduler } from "../scheduler/scheduler.ts";
import type { StepProgress } from "../thread/step-progress.ts";

export interface EngineCoreParts {
  readonly scheduler: Scheduler;
  readonly runner: ModelRunner;
  /** What has arrived since the last call, oldest first; does not wait. */
  readonly takeMessages: () => readonly ToEngineThread[];
  /** Where each step says how far it is. */
  readonly progress: StepProgress;
}

/** Mutable; owns the runner. All calls are made by the engine thread and return when the work is done. */
export class EngineCore implements Disposable {
  readonly #scheduler: Scheduler;
  readonly #runner: ModelRunner;
  readonly #takeMessages: () => readonly ToEngineThread[];
  readonly #progress: StepProgress;
  /** Outputs that came about between steps. */
  #pendingOutputs: EngineCoreOutput[] = [];
  #isClosing = false;

  constructor({ scheduler, runner, takeMessages, progress }: EngineCoreParts) {
    this.#scheduler = scheduler;
    this.#runner = runner;
    this.#takeMessages = takeMessages;
    this.#progress = progress;
  }

  /** Whether a step would compute or report anything. */
  get hasWork(): boolean {
    return this.#scheduler.hasUnfinished || this.#pendingOutputs.length > 0;
  }

  /** Whether a `close` message has arrived. */
  get isClosing(): boolean {
    return this.#isClosing;
  }

  get stats(): EngineCoreStats {
    return this.#scheduler.stats;
  }

  /** Schedules, runs and samples once; each sequence that got a token or ended has one output. */
  step(): EngineCoreOutput[] {
    this.#progress.beginStep();
    try {
      const scheduled = this.#scheduler.schedule();
      const results = this.#runner.run(scheduled);
      this.#progress.enter("scheduling");
      this.drainMessages();
      return [...this.#takePendingOutputs(), ...this.#scheduler.update(scheduled, results)];
    } finally {
      this.#progress.endStep();
    }
  }

  /** Images encoded since the last call, for caches outside the thread. */
  takeEncodedImages(): EncodedImage[] {
    return this.#runner.takeEncodedImages();
  }

  /** Takes in requests and aborts; the latter free what they hold at once. */
  drainMessages(): void {
    for (const message of this.#takeMessages()) {
      switch (message.kind) {
        case "add":
          this.#add(message.request);
          for (const sibling of message.siblings ?? []) this.#add({ ...message.request, ...sibling });
          break;
        case "abort":
          this.#pendingOutputs.push(...this.#scheduler.abort(message.requestIds));
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

  /** A request that is refused ends with an error in the outputs of the next step. */
  #add(request: EngineRequest): void {
    try {
      this.#scheduler.add(request);
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
      this.#pendingOutputs.push(refusalOf(request, error));
    }
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
