/** Adds up the statistics of the copies of a model. */
import { noDrafts } from "../scheduler/drafts.ts";
import type { DraftStats } from "../scheduler/drafts.ts";
import type { AdapterStats, EngineCoreStats } from "./messages.ts";

/** Before the first step. */
export const noStats: EngineCoreStats = {
  numRequestsRunning: 0,
  numRequestsWaiting: 0,
  kvCacheUsage: 0,
  kvCapacity: { blockSize: 0, numBlocks: 0, numTokens: 0 },
  numPromptTokens: 0,
  numGenerationTokens: 0,
  numPrefixCacheQueries: 0,
  numPrefixCacheHits: 0,
  numPreemptions: 0,
  numSteps: 0,
  drafts: noDrafts,
  adapters: { running: [], waiting: [] },
};

/** Of at least one thread. The share of the KV cache in use is that of all caches, which are equally large. */
export function totalStats(parts: readonly EngineCoreStats[]): EngineCoreStats {
  const [first] = parts;
  if (parts.length === 1) return first!;
  const sum = (of: (part: EngineCoreStats) => number): number => parts.reduce((total, part) => total + of(part), 0);
  return {
    numRequestsRunning: sum(({ numRequestsRunning }) => numRequestsRunning),
    numRequestsWaiting: sum(({ numRequestsWaiting }) => numRequestsWaiting),
    kvCacheUsage: sum(({ kvCacheUsage }) => kvCacheUsage) / parts.length,
    kvCapacity: {
      blockSize: first!.kvCapacity.blockSize,
      numBlocks: sum(({ kvCapacity }) => kvCapacity.numBlocks),
      numTokens: sum(({ kvCapacity }) => kvCapacity.numTokens),
    },
    numPromptTokens: sum(({ numPromptTokens }) => numPromptTokens),
    numGenerationTokens: sum(({ numGenerationTokens }) => numGenerationTokens),
    numPrefixCacheQueries: sum(({ numPrefixCacheQueries }) => numPrefixCacheQueries),
    numPrefixCacheHits: sum(({ numPrefixCacheHits }) => numPrefixCacheHits),
    numPreemptions: sum(({ numPreemptions }) => numPreemptions),
    numSteps: sum(({ numSteps }) => numSteps),
    drafts: totalDrafts(parts.map(({ drafts }) => drafts)),
    adapters: { running: union(parts, "running"), waiting: union(parts, "waiting") },
  };
}

function totalDrafts(parts: readonly DraftStats[]): DraftStats {
  const sum = (of: (part: DraftStats) => number): number => parts.reduce((total, part) => total + of(part), 0);
  const numPositions = Math.max(...parts.map(({ numAcceptedPerPosition }) => numAcceptedPerPosition.length));
  return {
    numDrafts: sum(({ numDrafts }) => numDrafts),
    numDraftTokens: sum(({ numDraftTokens }) => numDraftTokens),
    numAcceptedTokens: sum(({ numAcceptedTokens }) => numAcceptedTokens),
    numAcceptedPerPosition: Array.from({ length: numPositions }, (_, position) =>
      sum(({ numAcceptedPerPosition }) => numAcceptedPerPosition[position] ?? 0),
    ),
  };
}

function union(parts: readonly EngineCoreStats[], kind: keyof AdapterStats): readonly number[] {
  return [...new Set(parts.flatMap(({ adapters }) => adapters[kind]))];
}
