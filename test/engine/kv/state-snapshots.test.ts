/** Prefix reuse of a decoder with recurrent layers, which go on only from states that were kept. */
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { EngineConfig } from "../../../engine/contract/config.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { StateSnapshots } from "../../../engine/kv/state-snapshots.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { expectSameTokens } from "../core/conversations.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "../core/golden-engine.ts";
import type { GoldenModel } from "../core/golden-engine.ts";

describe("bookkeeping", () => {
  test("finds the longest snapshot of a slot within a limit, also after a swap", () => {
    const snapshots = new StateSnapshots(3);
    const rows = [snapshots.add(0, 10), snapshots.add(0, 40), snapshots.add(2, 30)];
    expect(new Set(rows).size).toBe(3);
    expect(Math.min(...rows)).toBeGreaterThanOrEqual(3);
    expect([9, 10, 39, 40].map((limit) => snapshots.longest(0, limit))).toEqual([0, 10, 10, 40]);
    snapshots.swap(0, 2);
    expect([snapshots.longest(0, 99), snapshots.longest(2, 99)]).toEqual([30, 40]);
    expect(snapshots.rowOf(2, 40)).toBe(rows[1]);
    snapshots.dropAfter(2, 39);
    expect(snapshots.longest(2, 99)).toBe(10);
  });

  test("replaces the snapshot whose last use is the longest ago", () => {
    const snapshots = new StateSnapshots(1);
    const [first, second] = [snapshots.add(0, 10), snapshots.add(0, 20)];
    snapshots.rowOf(0, 10);
    expect(snapshots.add(0, 30)).toBe(second);
    expect(snapshots.rowOf(0, 10)).toBe(first);
    expect(snapshots.longest(0, 29)).toBe(10);
  });
});

describe("an engine", () => {
  let cache: TemporaryFolder;
  let golden: GoldenModel;

  beforeAll(async () => {
    cache = await createTemporaryFolder();
    golden = await buildGoldenModel("qwen3.5", cache.path);
  });

  afterAll(() => cache[Symbol.asyncDispose]());

  const createEngine = (overrides: Partial<EngineConfig> = {}): Promise<SteppedEngine> =>
    SteppedEngine.create(createWorkerOptions(golden.model, overrides));

  const requestOf = (requestId: string, promptTokenIds: readonly number[], maxTokens = 6): EngineRequest => ({
    ...goldenRequest(requestId, golden.cases[0]!, golden.model, { maxTokens }),
    promptTokenIds,
  });

  const ids = (length: number, start: number): number[] =>
    Array.from({ length }, (_, index) => 4 + ((start + 7 * index) % 300));

  async function run(engine: SteppedEngine, request: EngineRequest): Promise<readonly number[]> {
    engine.add(request);
    await engine.runToEnd();
    return engine.tokensOf(request.requestId);
  }

  const numCachedOf = (engine: SteppedEngine, requestId: string): number =>
    engine.generations.get(requestId)!.outputs.at(-1)!.numCachedTokens;

  /** Runs the requests one after the other; each answer equals that of an engine without reuse. */
  async function cachedTokens(requests: readonly EngineRequest[], overrides: Partial<EngineConfig> = {}) {
    using engine = await createEngine(overrides);
    using reference = await createEngine({ enablePrefixCaching: false });
    for (const request of requests) expect(await run(engine, request)).toEqual(await run(reference, request));
    return requests.map(({ requestId }) => numCachedOf(engine, requestId));
  }

  test("goes on from a slot's own state in the next turn, and from a snapshot if the answer changed", async () => {
    const prompt = ids(100, 0);
    using engine = await createEngine({ enablePrefixCaching: false });
    const answer = await run(engine, requestOf("first", prompt));
    const turns = [
      requestOf("first", prompt),
      // All but the answer's last token are computed.
      requestOf("next", [...prompt, ...answer, ...ids(20, 5)]),
      requestOf("changed", [...prompt.slice(0, 95), ...ids(20, 50)]),
    ];
    expect(await cachedTokens(turns)).toEqual([0, 105, 84]);
  });

  test.for([1, 3, 8])("keeps the state where prompts branch, with %i slots", async (maxNumSequences) => {
    const shared = ids(80, 0);
    const branches = [1, 2, 3].map((index) => requestOf(`${index}`, [...shared, ...ids(60, 100 * index)]));
    // The second computes the shared tokens again and keeps the state after them.
    expect(await cachedTokens(branches, { maxNumSequences })).toEqual([0, 0, 80]);
  });

  test("equal prompts that come together wait for the first one's state instead of computing it again", async () => {
    using engine = await createEngine({ maxNumBatchedTokens: 16 });
    const prompt = ids(120, 0);
    for (const requestId of ["0", "1", "2"]) engine.add(requestOf(requestId, prompt));
    await engine.runToEnd();
    expect(numCachedOf(engine, "0")).toBe(0);
    // Chunks of 16 end at 96 and, for the snapshot, at 104.
    for (const requestId of ["1", "2"]) expect(numCachedOf(engine, requestId)).toBeGreaterThanOrEqual(96);
    expect(engine.tokensOf("1")).toEqual(engine.tokensOf("0"));
    expect(engine.tokensOf("2")).toEqual(engine.tokensOf("0"));
  });

  test("random conversations with branches, aborts and evictions get the same tokens as without reuse", async () => {
    const turn = fc.record({
      base: fc.nat(10),
      kept: fc.constantFrom(30, 60, 90, 100, 100),
      added: fc.record({ length: fc.integer({ min: 1, max: 70 }), start: fc.nat(290) }),
      maxTokens: fc.integer({ min: 1, max: 10 }),
      numSteps: fc.nat(8),
      isAborted: fc.nat(5).map((value) => value === 0),
    });
    let numHits = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(turn, { minLength: 6, maxLength: 14 }),
        fc.constantFrom(7, 40, 200),
        fc.constantFrom(1, 3, 6),
        async (turns, maxNumBatchedTokens, maxNumSequences) => {
          using reference = await createEngine({ enablePrefixCaching: false });
          using engine = await createEngine({ maxNumBatchedTokens, maxNumSequences });
          await expectSameTokens({ engine, reference }, turns, ({ base, kept, added, maxTokens }, index, earlier) => {
            const from = earlier[base];
            const tokens = from === undefined ? [] : [...from.promptTokenIds, ...reference.tokensOf(from.requestId)];
            const keptTokens = tokens.slice(0, Math.ceil((tokens.length * kept) / 100));
            const promptTokenIds = [...keptTokens, ...ids(added.length, added.start)].slice(-450);
            return requestOf(`${index}`, promptTokenIds, maxTokens);
          });
          numHits += engine.stats.numPrefixCacheHits;
        },
      ),
      { numRuns: 25, seed: 5 },
    );
    expect(numHits).toBeGreaterThan(0);
  });
});
