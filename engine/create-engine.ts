/** Where an engine comes from. */
import { ThreadedEngine } from "./threaded-engine.ts";
import type { EngineConfig } from "./config.ts";
import type { Engine, EngineDependencies } from "./engine.ts";

/** Returns at once, in state `loading`; `ready` tells how loading ended. */
export function createEngine(config: EngineConfig, dependencies: EngineDependencies): Engine {
  return new ThreadedEngine(config, dependencies);
}
