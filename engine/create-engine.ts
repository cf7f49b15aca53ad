/** Where an engine comes from. */
import { versions } from "node:process";
// All of it: an old Node, which lacks some of the names, can load this file and is refused below.
import * as workerThreads from "node:worker_threads";

import { ENGINE_THREAD_NAME } from "./thread/engine-thread.ts";
import { EngineError } from "./contract/errors.ts";
import { keepWasmCode } from "./runtime/keep-wasm-code.ts";
import { ThreadedEngine } from "./engine.ts";
import { toEngineConfig } from "./default-config.ts";
import type { EngineOptions } from "./default-config.ts";
import { createDataUrlImageSource } from "./images/data-url-image-source.ts";
import type { Engine, EngineDependencies } from "./contract/engine.ts";

/**
 * Returns at once, in state `loading`; `ready` tells how loading ended. Sets a flag of V8 for the whole process, for good:
 * `keepWasmCode` says why.
 *
 * @param options Settings left out have the service's defaults; without a model, the small shipped one is loaded.
 * @param dependencies Without image sources, images come as `data:` URLs only.
 * @throws EngineError `invalid_configuration` on a Node older than 24.6, and on an engine's own thread: the module of a
 *   logits processor that creates an engine when it is imported would create one engine after the other.
 */
export function createEngine(options: EngineOptions = {}, dependencies: Partial<EngineDependencies> = {}): Engine {
  if (workerThreads.threadName === undefined) {
    throw new EngineError("invalid_configuration", `Fovea needs Node.js 24.6 or newer; this is ${versions.node}.`);
  }
  if (workerThreads.threadName === ENGINE_THREAD_NAME) {
    throw new EngineError(
      "invalid_configuration",
      "The module of a logits processor creates an engine when it is imported. Move the class to its own module.",
    );
  }
  keepWasmCode();
  return new ThreadedEngine(toEngineConfig(options), { imageSources: [createDataUrlImageSource()], ...dependencies });
}
