/** Servers as separate processes that end in the middle of a batch, and others that resume it. */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { CreateBucketCommand } from "@aws-sdk/client-s3";
import OpenAI, { toFile } from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { ResultLine } from "../../../functions/batch/result-line.ts";
import { createLastingAnswers, withLastingAnswers } from "../../support/requests/lasting-answers.ts";
import type { LastingAnswers } from "../../support/requests/lasting-answers.ts";
import { startRedisServer } from "../../support/servers/redis-server.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import type { CliProcess } from "../../support/service/cli-process.ts";
import { startReadyCli } from "../../support/service/ready-cli.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

let folder: TemporaryFolder;
let numStores = 0;

beforeAll(async () => {
  folder = await createTemporaryFolder();
});

afterAll(() => folder[Symbol.asyncDispose]());

const newStore = (): string => join(folder.path, `store-${numStores++}`);

interface Server extends AsyncDisposable {
  readonly cli: CliProcess;
  readonly client: OpenAI;
  readonly metric: (name: string) => Promise<number>;
}

async function startServer(environment: Readonly<Record<string, string>>): Promise<Server> {
  const { cli, baseUrl } = await startReadyCli({ BATCH_MAX_NUM_SEQS: "2", ...withLastingAnswers, ...environment });
  return {
    cli,
    client: new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: "none", maxRetries: 0 }),
    async metric(name) {
      const text = await (await fetch(`${baseUrl}/metrics`)).text();
      return Number(new RegExp(`^${name}\\{[^}]*\\} (.*)$`, "m").exec(text)?.[1]);
    },
    [Symbol.asyncDispose]: () => cli[Symbol.asyncDispose](),
  };
}

const numLines = 30;
/** They are answered while the answers of those behind them last. */
const numQuickLines = 6;
const customIds = Array.from({ length: numLines }, (_, index) => `line-${index}`);

/** The batch ends when the answers are told to, so a server can be ended in the middle of it. */
async function queueLines({ client }: Server, answers: LastingAnswers): Promise<OpenAI.Batch> {
  const lines = customIds.map((custom_id, seed) => {
    const body = {
      prompt: "a red",
      max_tokens: 20,
      temperature: 1,
      seed,
      ...(seed >= numQuickLines && answers.fields),
    };
    return JSON.stringify({ custom_id, method: "POST", url: "/v1/completions", body });
  });
  const file = await toFile(Buffer.from(lines.join("\n")), "in.jsonl");
  const { id } = await client.files.create({ file, purpose: "batch" });
  return client.batches.create({ input_file_id: id, endpoint: "/v1/completions", completion_window: "24h" });
}

function parseLines(text: string): ResultLine[] {
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as ResultLine);
}

/** The folder's results of unfinished batches. */
async function resultsUnderWay(store: string): Promise<ResultLine[]> {
  const names = await readdir(join(store, "results")).catch(() => []);
  const texts = await Promise.all(names.map((name) => readFile(join(store, "results", name), "utf8")));
  return texts.flatMap(parseLines);
}

/** The results, once every line is answered exactly once. */
async function completedResults({ client }: Server, { id }: OpenAI.Batch): Promise<ResultLine[]> {
  await expect.poll(async () => (await client.batches.retrieve(id)).status, { timeout: 55_000 }).toBe("completed");
  const { output_file_id: output, request_counts: counts } = await client.batches.retrieve(id);
  expect(counts).toEqual({ total: numLines, completed: numLines, failed: 0 });
  const results = parseLines(await (await client.files.content(output!)).text());
  expect(results.map((line) => line.custom_id!).toSorted()).toEqual(customIds.toSorted());
  return results;
}

test.for([
  ["SIGKILL", null],
  ["SIGTERM", 0],
] as const)("after %s in the middle, the next start resumes, and no line is answered twice", async (ending) => {
  const [signal, code] = ending;
  const store = newStore();
  await using answers = await createLastingAnswers();
  await using first = await startServer({ BATCH_STORE: store });
  const batch = await queueLines(first, answers);
  await expect.poll(async () => (await resultsUnderWay(store)).length).toBeGreaterThan(3);
  first.cli.child.kill(signal);
  // Lines in progress are answered before it ends.
  if (signal === "SIGTERM") await first.cli.waitForLog("Draining.");
  await answers.finish();
  expect(await first.cli.exitCode).toBe(code);
  const early = await resultsUnderWay(store);
  expect(early.length).toBeLessThan(numLines);

  await using second = await startServer({ BATCH_STORE: store });
  const results = await completedResults(second, batch);
  expect(results.slice(0, early.length)).toEqual(early);
  await expect.poll(() => resultsUnderWay(store)).toEqual([]);
  await expect.poll(() => readdir(join(store, "unfinished"))).toEqual([]);
});

test("of two servers on one folder, one processes a batch; when it is killed, the other resumes it", async () => {
  const store = newStore();
  await using one = await startServer({ BATCH_STORE: store });
  await using other = await startServer({ BATCH_STORE: store });
  await using answers = await createLastingAnswers();
  const batch = await queueLines(one, answers);
  await expect.poll(async () => (await resultsUnderWay(store)).length).toBeGreaterThan(3);
  const running = [await one.metric("fovea_batches_running"), await other.metric("fovea_batches_running")];
  expect(new Set(running)).toEqual(new Set([0, 1]));
  const [worker, standby] = running[0] === 1 ? [one, other] : [other, one];
  worker.cli.child.kill("SIGKILL");
  await worker.cli.exitCode;
  await answers.finish();
  const early = await resultsUnderWay(store);
  expect((await completedResults(standby, batch)).slice(0, early.length)).toEqual(early);
});

test("a batch belongs to servers of its model; if its input is deleted, it fails and keeps its answers", async () => {
  const store = newStore();
  await using first = await startServer({ BATCH_STORE: store });
  await using answers = await createLastingAnswers();
  const batch = await queueLines(first, answers);
  await expect.poll(async () => (await resultsUnderWay(store)).length).toBeGreaterThan(3);
  first.cli.child.kill("SIGKILL");
  await first.cli.exitCode;
  const early = await resultsUnderWay(store);

  await using foreign = await startServer({ BATCH_STORE: store, SERVED_MODEL_NAME: "another" });
  expect((await foreign.client.batches.retrieve(batch.id)).status).toBe("in_progress");
  await foreign.client.files.delete(batch.input_file_id);
  expect(await resultsUnderWay(store)).toEqual(early);

  await using second = await startServer({ BATCH_STORE: store });
  await expect.poll(async () => (await second.client.batches.retrieve(batch.id)).status).toBe("failed");
  const failed = await second.client.batches.retrieve(batch.id);
  expect(failed.errors?.data).toEqual([
    expect.objectContaining({ code: "input_file_deleted", param: "input_file_id" }),
  ]);
  expect(failed.request_counts).toEqual({ total: numLines, completed: early.length, failed: 0 });
  const kept = await (await second.client.files.content(failed.output_file_id!)).text();
  expect(parseLines(kept)).toEqual(early);
});

test("replicas share batches over Redis and S3, and another resumes the batch of a killed one", async () => {
  const [redis, s3] = await Promise.all([startRedisServer(), startS3Server()]);
  await s3.client.send(new CreateBucketCommand({ Bucket: "batches" }));
  const environment = {
    BATCH_STORE: "s3://batches/fovea",
    REDIS_URL: redis.url,
    AWS_ENDPOINT_URL_S3: s3.endpoint,
    AWS_ACCESS_KEY_ID: "test",
    AWS_SECRET_ACCESS_KEY: "test",
  };
  const servers = await Promise.all([startServer(environment), startServer(environment)]);
  await using answers = await createLastingAnswers();
  const batch = await queueLines(servers[0], answers);
  const numAnswered = () => Promise.all(servers.map(({ metric }) => metric("fovea_batch_lines_total")));
  await expect.poll(async () => Math.max(...(await numAnswered()).map((count) => count || 0))).toBeGreaterThan(3);
  const running = await Promise.all(servers.map(({ metric }) => metric("fovea_batches_running")));
  expect(new Set(running)).toEqual(new Set([0, 1]));
  const [killed] = servers.splice(running.indexOf(1), 1);
  killed!.cli.child.kill("SIGKILL");
  await killed!.cli.exitCode;
  await answers.finish();
  await completedResults(servers[0], batch);
  await Promise.all(servers.map((server) => server[Symbol.asyncDispose]()));
  await Promise.all([redis.kill(), s3.stop()]);
}, 120_000);

test("a Redis outage does not end a batch, and a recovered Redis accepts new ones", async () => {
  let redis = await startRedisServer();
  const store = newStore();
  await using server = await startServer({ BATCH_STORE: store, REDIS_URL: redis.url });
  await using answers = await createLastingAnswers();
  const batch = await queueLines(server, answers);
  await expect.poll(async () => (await resultsUnderWay(store)).length).toBeGreaterThan(3);
  await redis.kill();
  await answers.finish();
  await completedResults(server, batch);
  const late = await queueLines(server, answers);
  expect(late.status).toBe("validating");
  redis = await startRedisServer({ port: redis.port });
  await completedResults(server, late);
  await redis.kill();
}, 120_000);
