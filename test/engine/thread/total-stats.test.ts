import { expect, test } from "vitest";

import type { EngineCoreStats } from "../../../engine/thread/messages.ts";
import { noStats, totalStats } from "../../../engine/thread/total-stats.ts";

test("counts add up, and the share of the KV cache is that of all caches", () => {
  const one: EngineCoreStats = {
    ...noStats,
    numRequestsRunning: 3,
    numSteps: 7,
    kvCacheUsage: 0.5,
    kvCapacity: { blockSize: 16, numBlocks: 10, numTokens: 160 },
    drafts: { numDrafts: 2, numDraftTokens: 6, numAcceptedTokens: 3, numAcceptedPerPosition: [2, 1, 0] },
    adapters: { running: [1, 2], waiting: [3] },
  };
  const other: EngineCoreStats = {
    ...one,
    numRequestsRunning: 1,
    kvCacheUsage: 0,
    drafts: { numDrafts: 1, numDraftTokens: 2, numAcceptedTokens: 1, numAcceptedPerPosition: [1] },
    adapters: { running: [2], waiting: [] },
  };
  expect(totalStats([one, other])).toEqual({
    ...noStats,
    numRequestsRunning: 4,
    numSteps: 14,
    kvCacheUsage: 0.25,
    kvCapacity: { blockSize: 16, numBlocks: 20, numTokens: 320 },
    drafts: { numDrafts: 3, numDraftTokens: 8, numAcceptedTokens: 4, numAcceptedPerPosition: [3, 1, 0] },
    adapters: { running: [1, 2], waiting: [3] },
  });
  expect(totalStats([one])).toEqual(one);
});
