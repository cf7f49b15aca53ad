/** The adapters of sequences, for metrics. */
import type { AdapterStats } from "../thread/messages.ts";
import type { Sequence } from "./sequence.ts";
import type { WaitingQueue } from "./waiting-queue.ts";

/** Waiting sequences whose adapters are reported. With thousands, a step must not take longer. */
const MAX_REPORTED_WAITING = 64;

const noAdapters: readonly number[] = [];
/** While no request has had an adapter. */
export const noAdapterStats: AdapterStats = { running: noAdapters, waiting: noAdapters };

export function adapterStatsOf(running: readonly Sequence[], waiting: WaitingQueue): AdapterStats {
  return { running: adaptersOf(running), waiting: adaptersOf(waiting.first(MAX_REPORTED_WAITING)) };
}

function adaptersOf(sequences: readonly Sequence[]): readonly number[] {
  if (sequences.every(({ tokens }) => tokens.adapterId === 0)) return noAdapters;
  return [...new Set(sequences.map(({ tokens }) => tokens.adapterId))].filter((id) => id !== 0);
}
