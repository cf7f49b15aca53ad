/** Servers whose S3 rejects calls, stops answering or recovers, and servers that are killed at the worst moment. */
import { CreateBucketCommand } from "@aws-sdk/client-s3";
import OpenAI, { APIError, toFile } from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { ResultLine } from "../../../functions/batch/result-line.ts";
import { startFaultProxy } from "../../support/servers/fault-proxy.ts";
import type { FaultProxy, ProxiedRequest } from "../../support/servers/fault-proxy.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";
import type { CliProcess } from "../../support/service/cli-process.ts";
import { startReadyCli } from "../../support/service/ready-cli.ts";

const NUM_LINES = 20;
const customIds = Array.from({ length: NUM_LINES }, (_, index) => `line-${index}`);

let s3: S3Server;
let numStores = 0;

beforeAll(async () => {
  s3 = await startS3Server();
  await s3.client.send(new CreateBucketCommand({ Bucket: "batches" }));
});

afterAll(() => s3.stop());

interface Server extends AsyncDisposable {
  readonly cli: CliProcess;
  readonly baseUrl: string;
  /** Reports every error at once. */
  readonly client: OpenAI;
  /** Retries, because a call to S3 on a slow machine may exceed the test's time limit. */
  readonly patient: OpenAI;
}

async function startServer(endpoint: string, store: string, settings = {}): Promise<Server> {
  const { cli, baseUrl } = await startReadyCli({
    BATCH_STORE: `s3://batches/${store}`,
    AWS_ENDPOINT_URL_S3: endpoint,
    AWS_ACCESS_KEY_ID: "test",
    AWS_SECRET_ACCESS_KEY: "test",
    ...settings,
  });
  const baseURL = `${baseUrl}/v1`;
  return {
    cli,
    baseUrl: baseURL,
    client: new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 }),
    patient: new OpenAI({ baseURL, apiKey: "none", maxRetries: 10 }),
    [Symbol.asyncDispose]: () => cli[Symbol.asyncDispose](),
  };
}

const newStore = (): string => `store-${numStores++}`;

async function queueLines({ patient: client }: Server): Promise<OpenAI.Batch> {
  const lines = customIds.map((custom_id) => {
    return JSON.stringify({ custom_id, method: "POST", url: "/v1/completions", body: { prompt: "a", max_tokens: 1 } });
  });
  const file = await toFile(Buffer.from(lines.join("\n")), "in.jsonl");
  const { id } = await client.files.create({ file, purpose: "batch" });
  return client.batches.create({ input_file_id: id, endpoint: "/v1/completions", completion_window: "24h" });
}

/** Expects the batch to complete with each line once. */
async function expectComplete({ patient: client }: Server, { id }: OpenAI.Batch): Promise<void> {
  const status = async (): Promise<string> => (await client.batches.retrieve(id)).status;
  await expect.poll(status, { timeout: 200_000 }).toBe("completed");
  const batch = await client.batches.retrieve(id);
  expect(batch.request_counts).toEqual({ total: NUM_LINES, completed: NUM_LINES, failed: 0 });
  const text = await (await client.files.content(batch.output_file_id ?? "none")).text();
  const lines = text.split("\n").slice(0, -1);
  const ids = lines.map((line) => (JSON.parse(line) as ResultLine).custom_id!);
  expect(ids.toSorted()).toEqual(customIds.toSorted());
}

/** For one kind of objects. */
const isWriteOf = (folder: string) => (request: ProxiedRequest) =>
  request.method === "PUT" && request.path.includes(`/${folder}/`);

const numRequests = ({ requests }: FaultProxy, method: string, folder: string): number =>
  requests.filter((request) => request.startsWith(method) && request.includes(`/${folder}/`)).length;

test("a batch completes with all results when S3 rejects them with 503 for a while", async () => {
  await using proxy = await startFaultProxy(s3.endpoint);
  await using server = await startServer(proxy.endpoint, newStore());
  proxy.decide((request) => (isWriteOf("results")(request) ? "refuse" : "forward"));
  const batch = await queueLines(server);
  // The S3 client itself makes three attempts for each of ours.
  await expect.poll(() => numRequests(proxy, "PUT", "results")).toBeGreaterThan(9);
  expect((await server.patient.batches.retrieve(batch.id)).status).toBe("in_progress");
  proxy.decide(() => "forward");
  await expectComplete(server, batch);
}, 300_000);

test("a batch completes with all results after SIGKILL while its last results are being stored", async () => {
  await using proxy = await startFaultProxy(s3.endpoint);
  const store = newStore();
  await using killed = await startServer(proxy.endpoint, store);
  proxy.decide((request) => (isWriteOf("results")(request) ? "hold" : "forward"));
  const batch = await queueLines(killed);
  await expect.poll(() => numRequests(proxy, "PUT", "results")).toBe(1);
  killed.cli.child.kill("SIGKILL");
  await killed.cli.exitCode;
  await using next = await startServer(s3.endpoint, store);
  await expectComplete(next, batch);
}, 300_000);

test("a batch completes with all results when S3 freezes and later executes all calls at once", async () => {
  await using proxy = await startFaultProxy(s3.endpoint);
  await using server = await startServer(proxy.endpoint, newStore(), { BATCH_STORE_TIMEOUT_SECONDS: "0.5" });
  let isFrozen = false;
  proxy.decide((request) => {
    isFrozen ||= isWriteOf("results")(request);
    return isFrozen ? "hold" : "forward";
  });
  const batch = await queueLines(server);
  await server.cli.waitForLog("Results cannot be stored now; they are kept in memory and retried.");
  await expect.poll(() => numRequests(proxy, "PUT", "results")).toBeGreaterThan(2);
  proxy.decide(() => "forward");
  proxy.release();
  await expectComplete(server, batch);
}, 300_000);

async function expectUnavailable(work: Promise<unknown>): Promise<void> {
  const error: unknown = await work.then(
    () => "answered",
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(APIError);
  expect(error).toMatchObject({ status: 503, code: "storage_unavailable", type: "server_error" });
}

test("requests for files and batches get 503 while S3 is frozen, others are answered as usual", async () => {
  await using proxy = await startFaultProxy(s3.endpoint);
  await using server = await startServer(proxy.endpoint, newStore(), { BATCH_STORE_TIMEOUT_SECONDS: "0.5" });
  const { client } = server;
  const batch = await queueLines(server);
  await expectComplete(server, batch);
  const file = await toFile(Buffer.from("{}"), "in.jsonl");
  const calls: Readonly<Record<string, () => Promise<unknown>>> = {
    "a batch": () => client.batches.retrieve(batch.id),
    "the batches": () => client.batches.list(),
    "a file": () => client.files.retrieve(batch.input_file_id),
    "the files": () => client.files.list(),
    "the content of a file": () => client.files.content(batch.input_file_id),
    "a cancellation": () => client.batches.cancel(batch.id),
    "a deletion": () => client.files.delete(batch.input_file_id),
    "a new batch": () =>
      client.batches.create({ ...batch, endpoint: "/v1/completions", completion_window: "24h", metadata: {} }),
    "an upload": () => client.files.create({ file, purpose: "batch" }),
  };
  proxy.decide(() => "hold");
  await Promise.all(Object.values(calls).map((call) => expectUnavailable(call())));
  const answer = await client.completions.create({ model: "fovea-shapes", prompt: "a", max_tokens: 1 });
  expect(answer.choices).toHaveLength(1);
  proxy.decide(() => "forward");
  expect((await server.patient.batches.retrieve(batch.id)).status).toBe("completed");
}, 300_000);

test("an upload whose record S3 stored without confirming it does not exist in part", async () => {
  await using proxy = await startFaultProxy(s3.endpoint);
  await using server = await startServer(proxy.endpoint, newStore());
  proxy.decide((request) => (isWriteOf("files")(request) ? "lose" : "forward"));
  await expectUnavailable(server.client.files.create({ file: await toFile(Buffer.from("{}"), "a"), purpose: "batch" }));
  expect((await server.patient.files.list()).data).toEqual([]);
  expect(numRequests(proxy, "DELETE", "contents")).toBe(1);
}, 300_000);

const MEBIBYTE = 1024 ** 2;

test("an upload that S3 stops accepting gets 503, and a download that S3 stops sending breaks off", async () => {
  await using proxy = await startFaultProxy(s3.endpoint);
  await using server = await startServer(proxy.endpoint, newStore(), { BATCH_STORE_TIMEOUT_SECONDS: "0.5" });
  const { client, patient } = server;
  const large = await toFile(Buffer.alloc(10 * MEBIBYTE, "x"), "in.jsonl");
  const { id } = await patient.files.create({ file: large, purpose: "batch" });

  // The first part is accepted, the second is not.
  proxy.decide(({ path }) => (path.includes("partNumber=2") ? "hold" : "forward"));
  await expectUnavailable(client.files.create({ file: large, purpose: "batch" }));
  proxy.decide(() => "forward");
  expect((await patient.files.list()).data).toHaveLength(1);

  let numReads = 0;
  proxy.decide(({ method, path }) =>
    method === "GET" && path.includes("/contents/") && ++numReads === 2 ? "stall" : "forward",
  );
  const download = await fetch(`${server.baseUrl}/files/${id}/content`);
  expect(download.status).toBe(200);
  await expect(download.arrayBuffer()).rejects.toThrow("terminated");
  proxy.decide(() => "forward");
  const whole = await (await patient.files.content(id)).arrayBuffer();
  expect(whole.byteLength).toBe(10 * MEBIBYTE);
}, 300_000);
