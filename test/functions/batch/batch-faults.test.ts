/**
 * Every point at which the store or the process can fail: over a whole batch life, from the upload to the end, the n-th
 * call to a real store fails, hangs or is the last one of its process, for all n.
 */
import { CreateBucketCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

import { startRedisServer } from "../../support/servers/redis-server.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import { faults } from "../../support/service/faulty-store.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { live, liveTogether } from "./batch-lives.ts";
import type { LifeResult, Places } from "./batch-lives.ts";

/** Concurrent lives. */
const NUM_LIVES = 16;
/** More calls than the shortest life without a fault has. */
const MIN_NUM_CALLS = 24;

// Takes seconds on an idle machine.
vi.setConfig({ testTimeout: 300_000 });

let folder: TemporaryFolder;
let places: Places;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  const [redis, s3] = await Promise.all([startRedisServer(), startS3Server()]);
  await s3.client.send(new CreateBucketCommand({ Bucket: "batches" }));
  places = { folder: folder.path, redis, s3 };
});

afterAll(async () => {
  await Promise.all([places.redis.kill(), places.s3.stop()]);
  await folder[Symbol.asyncDispose]();
});

/** All calls of a life, until none is left that the fault could meet. */
async function liveAll(liveAt: (at: number) => Promise<LifeResult>) {
  const problems: string[] = [];
  for (let first = 1; ; first += NUM_LIVES) {
    const numbers = Array.from({ length: NUM_LIVES }, (_, index) => first + index);
    const lives = await Promise.all(numbers.map(liveAt));
    problems.push(...lives.flatMap((life) => life.problems));
    if (!lives.some(({ isHit }) => isHit)) return { problems, hasManyCalls: first > MIN_NUM_CALLS };
  }
}

const allWell = { problems: [], hasManyCalls: true };
const folders = ["a folder", "a folder, results in segments"] as const;

describe.for(folders)("on %s", (kind) => {
  describe.for([false, true])("with Redis: %s", (hasRedis) => {
    test.for(faults)("a batch completes with every result when any call %s", async (fault) => {
      const life = { kind, hasRedis, ending: "completed" } as const;
      expect(await liveAll((at) => live(places, life, fault, at))).toEqual(allWell);
    });
  });
});

// Every call meets a fault here too, but not every combination of call, fault and Redis: that would take minutes.
test("on S3, a batch completes with every result when any call meets a fault", async () => {
  const lives = await liveAll((at) => {
    const hasRedis = Math.floor(at / faults.length) % 2 === 1;
    return live(places, { kind: "S3", hasRedis, ending: "completed" }, faults[at % faults.length]!, at);
  });
  expect(lives).toEqual(allWell);
});

test.for(folders)("a batch that two servers process together completes with every result, on %s", async (kind) => {
  expect(await liveAll((at) => liveTogether(places, kind, at))).toEqual(allWell);
});

describe.for(["expired", "cancelled"] as const)("a batch that is %s has no duplicate result", (ending) => {
  test.for(faults)("when any call %s", async (fault) => {
    const life = { kind: "a folder, results in segments", hasRedis: false, ending } as const;
    expect(await liveAll((at) => live(places, life, fault, at))).toEqual(allWell);
  });
});
