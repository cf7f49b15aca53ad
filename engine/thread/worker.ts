/** Entry of the engine thread. Owns the model, steps while there is work, and sleeps otherwise. */
import process from "node:process";
import { setImmediate as nextTurn } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import type { MessagePort } from "node:worker_threads";

import { EngineError, invariant } from "../contract/errors.ts";
import type { OnStartPhase } from "../contract/start-phase.ts";
import { createEngineCore } from "../core/create-engine-core.ts";
import type { EngineCore } from "../core/engine-core.ts";
import { collectGarbage } from "../runtime/collect-garbage.ts";
import { requireKernelsFor } from "../runtime/cuda-driver.ts";
import { HugePages } from "../runtime/huge-pages.ts";
import { ortEnvironment } from "../runtime/ort-environment.ts";
import { releaseFreedMemory, releaseIdleMemory } from "../runtime/release-memory.ts";
import { requireCudaDevice } from "../runtime/require-cuda-device.ts";
import { isLoadingSession } from "../runtime/session.ts";
import { reasonOf } from "../sampling/contract/row-failures.ts";
import { CopyActivity } from "./copy-activity.ts";
import { Inbox } from "./inbox.ts";
import type { EngineThreadData, FromEngineThread, WorkerOptions } from "./messages.ts";
import { StepProgress } from "./step-progress.ts";

/** Longer than a client needs between an answer and its next request, which then still finds the memory of runs. */
const REST_AFTER_MS = 100;
/** After this time, the garbage of this thread is collected too, which takes tens of milliseconds. */
const IDLE_AFTER_MS = 30_000;

/** Ends on a close message or after a failure that it has reported, and frees the model's memory in both cases. */
async function serve(port: MessagePort, { optionsPort, progress, cudaDeviceId }: EngineThreadData): Promise<void> {
  const inbox = new Inbox(port);
  const post = (message: FromEngineThread): void => port.postMessage(message);
  try {
    // Takes tens of milliseconds, during which the facade determines what to load.
    const start = performance.now();
    ortEnvironment();
    const onPhase: OnStartPhase = (phase, seconds) => post({ kind: "phase", phase, seconds });
    onPhase("runtime", (performance.now() - start) / 1000);
    // While the checkpoint is downloaded, so that a machine that cannot serve says so at once.
    const device = cudaDeviceId === null ? null : requireCudaDevice(cudaDeviceId);
    if (device !== null) post({ kind: "device", device });
    const options = await receiveOptions(optionsPort);
    if (options === null) return;
    const { config, model } = options;
    if (device !== null && config.device === "cuda") requireKernelsFor(model.decoder.kvElementType, device);
    // Steps of GPUs do not read the memory of this process.
    const earlierMemory = config.device === "cpu" ? HugePages.inUse() : null;
    using core = await createEngineCore(options, () => inbox.take(), new StepProgress(progress), onPhase);
    await collectGarbage();
    releaseFreedMemory();
    post({ kind: "ready", stats: core.stats });
    const weights = earlierMemory === null ? null : HugePages.inUse(earlierMemory);
    try {
      const { copy = null, wantsEmbeddings = true } = options;
      const activity = copy === null ? null : new CopyActivity(copy.activity, copy.index);
      await stepUntilClosed(core, { inbox, post, weights, wantsEmbeddings, activity });
    } catch (error) {
      // Before the model is freed, which may crash the process if the device is lost.
      post({ kind: "failed", ...describeFailure(error) });
    } finally {
      await core.settleCopies();
    }
  } catch (error) {
    post({ kind: "failed", ...describeFailure(error) });
  } finally {
    port.close();
  }
}

interface Stepping {
  readonly inbox: Inbox;
  readonly post: (message: FromEngineThread) => void;
  /** The memory that loading has filled, to be moved to larger pages; null if it is left where it is. */
  readonly weights: HugePages | null;
  readonly wantsEmbeddings: boolean;
  /** Null for the only copy of the model. */
  readonly activity: CopyActivity | null;
}

async function stepUntilClosed(
  core: EngineCore,
  { inbox, post, weights, wantsEmbeddings, activity }: Stepping,
): Promise<void> {
  let toMove = weights;
  for (;;) {
    core.drainMessages();
    if (core.isClosing) return;
    if (activity !== null) activity.isBusy = core.hasWork;
    if (!core.hasWork) {
      if (core.isCopying) {
        await nextTurn();
        postEmbeddings(core, post);
        continue;
      }
      if (toMove?.moveNext() === true) {
        await nextTurn();
        continue;
      }
      toMove = null;
      if (!(await inbox.nextMessage(REST_AFTER_MS))) await rest(inbox);
      continue;
    }
    const start = performance.now();
    post({ kind: "outputs", outputs: core.step(), stats: core.stats });
    toMove?.moveBetweenSteps(performance.now() - start);
    if (wantsEmbeddings) core.copyEncoderOutputs();
    // The event loop reports the end of a copy, of the encoding of an image and of the loading of a session.
    if (core.isWaiting) await Promise.race([core.encodingEnded, inbox.nextMessage()]);
    else if (core.isEncoding || core.isCopying || isLoadingSession()) await nextTurn();
    if (wantsEmbeddings) postEmbeddings(core, post);
  }
}

/** Returns memory, first what costs nothing to return, and resolves at the next message. */
async function rest(inbox: Inbox): Promise<void> {
  releaseIdleMemory();
  if (await inbox.nextMessage(IDLE_AFTER_MS)) return;
  await collectGarbage();
  releaseFreedMemory();
  await inbox.nextMessage();
}

function postEmbeddings(core: EngineCore, post: (message: FromEngineThread) => void): void {
  const images = core.takeEncoderOutputs();
  if (images.length > 0) post({ kind: "encoded", images });
}

/** Null if the port is closed before the options arrive. */
function receiveOptions(port: MessagePort): Promise<WorkerOptions | null> {
  const { promise, resolve } = Promise.withResolvers<WorkerOptions | null>();
  port.once("message", resolve);
  port.once("close", () => resolve(null));
  return promise;
}

function describeFailure(error: unknown): Omit<FromEngineThread & { kind: "failed" }, "kind"> {
  if (error instanceof EngineError) return { code: error.code, message: error.message, setting: error.setting };
  return { code: "internal", message: `The engine thread failed: ${reasonOf(error)}`, setting: null };
}

/** In place of Node's own listener, which writes them to standard error. The thread that loads the engine emits them. */
function forwardWarnings(port: MessagePort): void {
  process.removeAllListeners("warning");
  process.on("warning", (warning: Error & { readonly code?: string }) => {
    const { name, message, stack, code } = warning;
    const parts = { name, message, ...(stack !== undefined && { stack }), ...(code !== undefined && { code }) };
    port.postMessage({ kind: "warning", warning: parts } satisfies FromEngineThread);
  });
}

// Only logits processors leave promises and timers behind here, and a step, which catches its own errors, never runs at
// the same time. None of them ends all requests.
process.on("uncaughtException", (error) => {
  process.emitWarning(`Code that a logits processor has left behind threw: ${reasonOf(error)}`);
});
process.on("unhandledRejection", (reason) => {
  process.emitWarning(`A promise that a logits processor no longer waits for was rejected: ${reasonOf(reason)}`);
});
invariant(parentPort !== null, "worker.ts is the entry of a worker thread");
forwardWarnings(parentPort);
await serve(parentPort, workerData as EngineThreadData);
