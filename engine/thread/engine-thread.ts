/** The engine thread from outside: starting, messages, end. */
import process from "node:process";
import { MessageChannel, Worker } from "node:worker_threads";
import type { MessagePort } from "node:worker_threads";

import { EngineError } from "../contract/errors.ts";
import type { OnStartPhase } from "../contract/start-phase.ts";
import { moduleUrl } from "../module-url.ts";
import type { CudaDevice } from "../runtime/cuda-driver.ts";
import type {
  EncoderOutput,
  EngineCoreStats,
  EngineThreadData,
  FromEngineThread,
  ThreadWarning,
  ToEngineThread,
  WorkerOptions,
} from "./messages.ts";
import { StepProgress, StepWatchdog } from "./step-progress.ts";
import type { StepStall } from "./step-progress.ts";
import { noStats } from "./total-stats.ts";

export interface EngineThreadListener {
  readonly onPhase: OnStartPhase;
  /** The thread has found its GPU. Only on CUDA. */
  onDevice(device: CudaDevice): void;
  /** The thread accepts requests from now on. */
  onReady(): void;
  onOutputs(message: Extract<FromEngineThread, { kind: "outputs" }>): void;
  onEncoded(images: readonly EncoderOutput[]): void;
  /** Called as `StepWatchdog` reports; not after `onFailed`. */
  onStall(stall: StepStall | null): void;
  /** The thread has ended or is about to end by itself. Called at most once, as the last call. */
  onFailed(error: EngineError): void;
}

export const engineThreadName = "fovea-engine";

/** A step of a large model may take this long, and the thread can end only between two steps. */
const CLOSE_TIMEOUT_MS = 30_000;

/** JavaScript ends within milliseconds of termination. A hanging driver call never ends. */
const TERMINATE_TIMEOUT_MS = 5_000;

/** Mutable. Reports nothing after it has failed or while it is being closed. */
export class EngineThread {
  readonly #worker: Worker;
  /** Carries the options. */
  readonly #options: MessagePort;
  readonly #exited: Promise<void>;
  readonly #watchdog: StepWatchdog;
  /** Sequences of requests that were sent here and have not ended; counted by who sends them. */
  numSequences = 0;
  #stats = noStats;
  #isStalled = false;
  #isReady = false;
  #isOver = false;

  /**
   * Starts the thread, which loads its modules and waits for `load`.
   *
   * @param stepTimeoutMs A step that takes longer is reported as a stall.
   * @param cudaDeviceId See `EngineThreadData`.
   */
  constructor(listener: EngineThreadListener, stepTimeoutMs: number, cudaDeviceId: number | null = null) {
    const { port1, port2 } = new MessageChannel();
    this.#options = port1;
    const progress = new StepProgress();
    const workerData: EngineThreadData = { optionsPort: port2, progress: progress.buffer, cudaDeviceId };
    this.#worker = new Worker(moduleUrl("./worker", import.meta.url), {
      name: engineThreadName,
      workerData,
      transferList: [port2],
    });
    this.#watchdog = new StepWatchdog(progress, {
      timeoutMs: stepTimeoutMs,
      onChange: (stall) => {
        this.#isStalled = stall !== null;
        if (!this.#isOver) listener.onStall(stall);
      },
    });
    this.#exited = new Promise((resolve) => this.#worker.once("exit", () => resolve()));
    void this.#exited.then(() => this.#watchdog.stop());
    const fail = (error: EngineError): void => {
      if (this.#isOver) return;
      this.#isOver = true;
      listener.onFailed(error);
    };
    this.#worker.on("message", (message: FromEngineThread) => {
      if (message.kind === "warning") return emitWarningOf(message.warning);
      if (this.#isOver) return;
      switch (message.kind) {
        case "phase":
          return listener.onPhase(message.phase, message.seconds);
        case "device":
          return listener.onDevice(message.device);
        case "ready":
          this.#watchdog.start();
          this.#stats = message.stats;
          this.#isReady = true;
          return listener.onReady();
        case "outputs":
          this.#stats = message.stats;
          return listener.onOutputs(message);
        case "encoded":
          return listener.onEncoded(message.images);
        case "failed":
          return fail(errorOf(message));
      }
    });
    this.#worker.on("error", (cause) => {
      fail(new EngineError("internal", "The engine thread ended with an error.", { cause }));
    });
    this.#worker.on("exit", (exitCode) => {
      fail(new EngineError("internal", `The engine thread ended by itself, with exit code ${exitCode}.`));
    });
  }

  /** Whether the thread accepts requests, or has until it failed. */
  get isReady(): boolean {
    return this.#isReady;
  }

  /** As of the last step; 0 to 1. */
  get kvCacheUsage(): number {
    return this.#stats.kvCacheUsage;
  }

  /** As of the last step. */
  get stats(): EngineCoreStats {
    return this.#stats;
  }

  /** Call it once. */
  load(options: WorkerOptions): void {
    this.#options.postMessage(options);
    this.#options.close();
  }

  /** Messages to a thread that has ended are lost. */
  post(message: ToEngineThread): void {
    this.#worker.postMessage(message);
  }

  /**
   * Resolves when the thread has freed the model and ended. Does not wait for the step of a stalled thread. Idempotent.
   *
   * @throws EngineError `engine_stalled` if the thread is in a native call that does not return: the thread cannot be
   * ended, and Node waits for it even in `process.exit`.
   */
  async close(): Promise<void> {
    this.#isOver = true;
    this.#options.close();
    this.post({ kind: "close" });
    const stuck = Promise.withResolvers<never>();
    let timer = setTimeout(
      () => {
        void this.#worker.terminate();
        timer = setTimeout(() => stuck.reject(stuckError()), TERMINATE_TIMEOUT_MS);
      },
      this.#isStalled ? 0 : CLOSE_TIMEOUT_MS,
    );
    try {
      await Promise.race([this.#exited, stuck.promise]);
    } finally {
      clearTimeout(timer);
    }
  }
}

function stuckError(): EngineError {
  return new EngineError(
    "engine_stalled",
    "The engine thread cannot be ended: it is in a call of ONNX Runtime or of a device driver that does not return.",
  );
}

function errorOf({ code, message, setting }: FromEngineThread & { kind: "failed" }): EngineError {
  return new EngineError(code, message, setting === null ? {} : { setting });
}

function emitWarningOf({ message, ...parts }: ThreadWarning): void {
  process.emitWarning(Object.assign(new Error(message), parts));
}
