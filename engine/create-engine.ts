/** Creates engines. */
import { versions } from "node:process";
// Import the namespace: an old Node lacks some of the names, but can then load this file and gets an error below.
import * as workerThreads from "node:worker_threads";

import type { Engine, EngineDependencies } from "./contract/engine.ts";
import { EngineError } from "./contract/errors.ts";
import { toEngineConfig } from "./default-config.ts";
import type { EngineOptions } from "./default-config.ts";
import { ThreadedEngine } from "./engine.ts";
import { shown } from "./excerpt.ts";
import { createDataUrlImageSource } from "./images/data-url-image-source.ts";
import type { ImageSource } from "./images/image-source.ts";
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
  checkDependencies(dependencies);
  if (dependencies.logitsProcessors !== undefined) checkGivenClasses(dependencies.logitsProcessors);
  keepWasmCode();
  const { imageSources = [createDataUrlImageSource()] } = dependencies;
  return new ThreadedEngine(config, { ...dependencies, imageSources });
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

/** In plain JavaScript, types catch neither a misspelled name nor a value of another kind. */
function checkDependencies(dependencies: object): void {
  for (const [name, value] of Object.entries(dependencies) as [string, unknown][]) {
    if (!Object.hasOwn(dependencyNames, name)) {
      const names = Object.keys(dependencyNames).join(", ");
      throw refusal(`The second argument of createEngine has no ${name}; it takes ${names}.`);
    }
    if (value === undefined || name === "logitsProcessors") continue;
    if (name === "imageSources") checkImageSources(value);
    else if (typeof value !== "function") throw refusal(`${name} is ${shown(value)}; expected a function.`);
  }
}

function checkImageSources(sources: unknown): void {
  if (!Array.isArray(sources)) throw refusal(`imageSources is ${shown(sources)}; expected a list.`);
  for (const [index, source] of (sources as (Partial<ImageSource> | null | undefined)[]).entries()) {
    if (Array.isArray(source?.schemes) && typeof source.fetch === "function") continue;
    throw refusal(`imageSources[${index}] is ${shown(source)}; expected an object with schemes, a list, and fetch.`);
  }
}

function refusal(message: string): EngineError {
  return new EngineError("invalid_configuration", message);
}
