/** Entry of the thread that builds a model: ends when that is built, has failed or is not wanted any more. */
import { parentPort } from "node:worker_threads";
import { EngineError, invariant } from "../errors.ts";
import { openCheckpoint } from "../weights/checkpoint.ts";
import type { WeightProgress } from "../weights/progress.ts";
import { buildModel } from "./build-model.ts";
import type { FromBuildThread, ToBuildThread } from "./build-thread.ts";

const port = parentPort;
invariant(port !== null, "build-worker.ts is the entry of a worker thread");
const post = (message: FromBuildThread): void => port.postMessage(message);
const endThread = (): void => port.close();
const aborting = new AbortController();
const { signal } = aborting;
let isBuilding = false;

port.on("message", (message: ToBuildThread) => {
  switch (message.kind) {
    case "build":
      isBuilding = true;
      return void build(message);
    case "abort":
      aborting.abort();
      // What is being built tells of its end itself.
      if (!isBuilding) endThread();
  }
});

async function build({ folder, options }: Extract<ToBuildThread, { kind: "build" }>): Promise<void> {
  try {
    const checkpoint = await openCheckpoint(folder, options);
    const onProgress = (progress: WeightProgress): void => post({ kind: "progress", progress });
    post({ kind: "built", model: await buildModel(checkpoint, { ...options, onProgress, signal }) });
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    const { code, message, cause } = error;
    // Errors are copied with their stacks and causes; of what else can be thrown not all can.
    post({ kind: "failed", code, message, cause: cause instanceof Error ? cause : undefined });
  } finally {
    endThread();
  }
}
