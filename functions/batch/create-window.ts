/** The share of the engine for work that no client waits for. */
import { totalSequences } from "../../engine/index.ts";
import type { Engine } from "../../engine/index.ts";
import type { Service } from "../service.ts";
import type { Config } from "../settings/config.ts";
import { WorkWindow } from "./work-window.ts";

type WindowConfig = {
  readonly engine: Pick<Config["engine"], "maxNumSequences" | "dataParallelSize">;
  readonly batches: Pick<Config["batches"], "maxNumSequences">;
};

/**
 * Shared by batches and jobs; requests of clients narrow it. The engine, which must be ready, may have room for fewer
 * sequences than requested.
 */
export function createWindow(config: WindowConfig, service: Service, engine: Engine): WorkWindow {
  const numSequences = engine.modelInfo?.maxNumSequences ?? totalSequences(config.engine);
  const maxWeight = Math.min(numSequences, config.batches.maxNumSequences ?? Math.ceil(numSequences / 2));
  return new WorkWindow(maxWeight, {
    room: () => Math.min(maxWeight, numSequences - service.numRequests),
    whenRoomChanges: () => service.whenRequestEnds(),
    hasOthers: () => service.numRequests > 0,
  });
}
