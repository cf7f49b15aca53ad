/** Where an engine comes from. */
import { threadName } from "node:worker_threads";

import { ENGINE_THREAD_NAME } from "./thread/engine-thread.ts";
import { EngineError } from "./contract/errors.ts";
import { keepWasmCode } from "./runtime/keep-wasm-code.ts";
import { ThreadedEngine } from "./engine.ts";
import type { EngineConfig } from "./contract/config.ts";
import type { Engine, EngineDependencies } from "./contract/engine.ts";

/**
 * Returns at once, in state `loading`; `ready` tells how loading ended. Sets a flag of V8's for the process, once and for
 * good: `keepWasmCode` says why.
 *
 * @throws EngineError `invalid_configuration` on an engine's own thread, where the module of a logits processor that
 *   creates an engine when it is imported would create one engine after the other.
 */
export function createEngine(config: EngineConfig, dependencies: EngineDependencies): Engine {
  if (threadName === ENGINE_THREAD_NAME) {
    throw new EngineError(
      "invalid_configuration",
      "The module of a logits processor creates an engine when it is imported; move the class to a module of its own.",
    );
  }
  keepWasmCode();
  return new ThreadedEngine(config, dependencies);
}
