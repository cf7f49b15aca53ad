/** Creates engines. */
import { versions } from "node:process";
// Import the namespace: an old Node lacks some of the names, but can then load this file and gets an error below.
import * as workerThreads from "node:worker_threads";

import type { Engine, EngineDependencies } from "./contract/engine.ts";
import { EngineError } from "./contract/errors.ts";
import { toEngineConfig } from "./default-config.ts";
import type { EngineOptions } from "./default-config.ts";
import { ThreadedEngine } from "./engine.ts";
import { createDataUrlImageSource } from "./images/data-url-image-source.ts";
import { keepWasmCode } from "./runtime/keep-wasm-code.ts";
import { checkGivenClasses } from "./sampling/custom/given-processors.ts";
import { engineThreadName } from "./thread/engine-thread.ts";

/**
 * Returns at once in state `loading`; `ready` settles when loading ends. Sets a V8 flag for the whole process,
 * permanently: `keepWasmCode` explains why.
 *
 * @param options Settings that are left out have the service's defaults. Without a model, the small shipped one is
 * loaded.
 * @param dependencies Without image sources, only `data:` URLs are supported.
 * @throws EngineError `invalid_configuration` for an unknown option or dependency and an invalid value, on a Node older
 * than 24.6, and on an engine's own thread: a logits processor module that creates an engine on import would create engines
 * recursively.
 */
export function createEngine(options: EngineOptions = {}, dependencies: Partial<EngineDependencies> = {}): Engine {
  if (workerThreads.threadName === undefined) {
    throw new EngineError("invalid_configuration", `Fovea needs Node.js 24.6 or newer; this is ${versions.node}.`);
  }
  if (workerThreads.threadName === engineThreadName) {
    throw new EngineError(
      "invalid_configuration",
      "The module of a logits processor creates an engine when it is imported. Move the class to its own module.",
    );
  }
  const config = toEngineConfig(options);
  checkDependencyNames(dependencies);
  if (dependencies.logitsProcessors !== undefined) checkGivenClasses(dependencies.logitsProcessors);
  keepWasmCode();
  return new ThreadedEngine(config, { imageSources: [createDataUrlImageSource()], ...dependencies });
}

const dependencyNames: Readonly<Record<keyof EngineDependencies, true>> = {
  imageSources: true,
  createS3Client: true,
  createByteStore: true,
  onProgress: true,
  onPhase: true,
  onDevice: true,
  onStall: true,
  onFailed: true,
  logitsProcessors: true,
};

/** In plain JavaScript, types do not catch a misspelled name. */
function checkDependencyNames(dependencies: object): void {
  const unknown = Object.keys(dependencies).find((name) => !Object.hasOwn(dependencyNames, name));
  if (unknown === undefined) return;
  throw new EngineError(
    "invalid_configuration",
    `The second argument of createEngine has no ${unknown}; it takes ${Object.keys(dependencyNames).join(", ")}.`,
  );
}
