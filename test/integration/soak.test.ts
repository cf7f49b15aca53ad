/** `npm run bench -- soak` in short: what can be counted, without memory. */
import { isDeepStrictEqual } from "node:util";
import { expect, test } from "vitest";

import { startServerProcess, untilReady } from "../bench/server-process.ts";
import { loadNames, loads } from "../bench/soak/loads.ts";
import { countConnections, countOpenFiles } from "../bench/soak/process-resources.ts";
import { createRandom } from "../gpu/numbers.ts";
import { startRedisServer } from "../support/servers/redis-server.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

const NUM_CLIENTS = 3;
const NUM_ROUNDS = 3;

/** Gauges of what requests hold. */
const gauges = [
  "vllm:num_requests_running",
  "vllm:num_requests_waiting",
  "vllm:kv_cache_usage_perc",
  "fovea_http_requests_in_flight",
  "fovea_http_bodies_in_flight",
  "fovea_http_body_bytes",
  "fovea_batches_unfinished",
  "fovea_batches_running",
];

test("requests of all kinds leave no sequence, block, body, batch, file or connection behind", async () => {
  await using folder = await createTemporaryFolder();
  const redis = await startRedisServer();
  try {
    await using server = await startServerProcess({
      REDIS_URL: redis.url,
      BATCH_STORE: folder.path,
      MAX_NUM_SEQS: "4",
      MAX_MODEL_LEN: "1024",
      KV_CACHE_MEMORY_BYTES: "4MiB",
    });
    await untilReady(server);
    const port = Number(new URL(server.url).port);
    const countHeld = async () => {
      const openFiles = await countOpenFiles(server.pid);
      return {
        // The connections of clients are theirs to close.
        sockets: openFiles.get("socket")! - (await countConnections(server.pid, port)),
        files: openFiles.get("file"),
        redisConnections: redis.command("client", "list").split("\n").length,
      };
    };
    const readGauges = async () => {
      const metrics = await (await fetch(`${server.url}/metrics`)).text();
      return gauges.map((name) => Number(new RegExp(`^${name}(?:{.*})? (.*)$`, "m").exec(metrics)?.[1]));
    };
    const allZero = gauges.map(() => 0);
    const randoms = Array.from({ length: NUM_CLIENTS }, (_, index) => createRandom(index));
    const runAll = async (): Promise<void> => {
      for (const name of loadNames) await Promise.all(randoms.map((random) => loads[name](server.url, random)));
      await expect.poll(readGauges).toEqual(allZero);
    };
    await runAll();
    let held = await countHeld();
    // Until nothing is being closed any more.
    const isSettled = async (): Promise<boolean> => {
      const before = held;
      held = await countHeld();
      return isDeepStrictEqual(held, before);
    };
    await expect.poll(isSettled, { interval: 500 }).toBe(true);
    for (let round = 0; round < NUM_ROUNDS; round++) await runAll();
    await expect.poll(countHeld).toEqual(held);
  } finally {
    await redis.kill();
  }
}, 180_000);
