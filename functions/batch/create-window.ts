/** The share of the engine and of the memory for work that no client waits for. */
import { getHeapStatistics } from "node:v8";

import { totalSequences } from "../../engine/index.ts";
import type { Engine } from "../../engine/index.ts";
import type { Service } from "../service.ts";
import type { Config } from "../settings/config.ts";
import { WorkWindow } from "./work-window.ts";

/**
 * Part of the heap for the lines that are being answered. Their pictures stay in it as text until the answer is complete,
 * and a process whose heap is full ends at once. Bodies of requests have parts of their own.
 */
const LINES_SHARE_OF_HEAP = 0.25;

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
    maxLineBytes: roomForLines(),
  });
}

/** Bytes that all lines may have that are in memory. */
export function roomForLines(): number {
  return Math.floor(getHeapStatistics().heap_size_limit * LINES_SHARE_OF_HEAP);
}
