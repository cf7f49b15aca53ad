/** The whole service with its own store, called by OpenAI's client. */
import { readdir, readlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import OpenAI, { toFile } from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { ResultLine } from "../../../functions/batch/result-line.ts";
import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

const endpoint = "/v1/completions";

let folder: TemporaryFolder;
let service: RunningService;
let client: OpenAI;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  service = await startService({
    BATCH_STORE: join(folder.path, "store"),
    BATCH_MAX_FILE_BYTES: "1MiB",
    BATCH_MAX_LINES: "500",
    MAX_NUM_SEQS: "4",
    BATCH_MAX_NUM_SEQS: "1",
  });
  client = clientOf(service);
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

function clientOf({ baseUrl }: RunningService, apiKey = "none"): OpenAI {
  return new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey, maxRetries: 0 });
}

function line(customId: string, body: object, url = endpoint): object {
  return { custom_id: customId, method: "POST", url, body };
}

/** Takes some hundred steps of the engine. */
const long = { prompt: "a", max_tokens: 400, ignore_eos: true };

async function upload(lines: readonly object[] | string, to = client): Promise<string> {
  const text = typeof lines === "string" ? lines : lines.map((each) => JSON.stringify(each)).join("\n");
  const { id } = await to.files.create({ file: await toFile(Buffer.from(text), "in.jsonl"), purpose: "batch" });
  return id;
}

async function queue(lines: readonly object[] | string, to = client): Promise<OpenAI.Batch> {
  const input_file_id = await upload(lines, to);
  return to.batches.create({ input_file_id, endpoint, completion_window: "24h" });
}

async function whenEnded({ id }: OpenAI.Batch): Promise<OpenAI.Batch> {
  const ended = new Set(["completed", "failed", "expired", "cancelled"]);
  await expect
    .poll(async () => (await client.batches.retrieve(id)).status)
    .toSatisfy((status: string) => ended.has(status));
  return client.batches.retrieve(id);
}

async function resultsOf(fileId: string | undefined): Promise<ResultLine[]> {
  if (!fileId) return [];
  const text = await (await client.files.content(fileId)).text();
  return text
    .trimEnd()
    .split("\n")
    .map((each) => JSON.parse(each) as ResultLine);
}

test("a batch gives the same answers as single requests; answers and errors are in separate files", async () => {
  const good = Array.from({ length: 12 }, (_, index) =>
    line(`good-${index}`, { prompt: "A large red", max_tokens: 4 }),
  );
  const lines = [
    ...good,
    line("bad", { prompt: "a", max_tokens: -1 }),
    line("unknown", { prompt: "a", model: "other" }),
  ];
  const batch = await queue(lines);
  expect(batch).toMatchObject({ object: "batch", status: "validating", model: "fovea-shapes", metadata: null });
  const ended = await whenEnded(batch);
  expect(ended).toMatchObject({
    status: "completed",
    request_counts: { total: 14, completed: 12, failed: 2 },
    errors: null,
    expired_at: null,
    expires_at: batch.created_at + 86_400,
  });
  for (const name of ["in_progress_at", "finalizing_at", "completed_at"] as const) {
    expect(ended[name]).toBeGreaterThanOrEqual(batch.created_at);
  }

  const answers = await resultsOf(ended.output_file_id);
  expect(answers.map(({ custom_id: id }) => id!).toSorted()).toEqual(
    good.map((_, index) => `good-${index}`).toSorted(),
  );
  const alone = await client.completions.create({ model: "fovea-shapes", prompt: "A large red", max_tokens: 4 });
  const texts = answers.map(({ response }) => (response!.body as OpenAI.Completion).choices[0]!.text);
  expect(new Set(texts)).toEqual(new Set([alone.choices[0]!.text]));
  const promptTokens = 12 * alone.usage!.prompt_tokens;
  expect(ended.usage).toMatchObject({
    input_tokens: promptTokens,
    total_tokens: promptTokens + ended.usage!.output_tokens,
  });

  const refusals = await resultsOf(ended.error_file_id);
  expect(refusals.map(({ custom_id: id, response }) => `${id} ${response?.status_code}`).toSorted()).toEqual([
    "bad 400",
    "unknown 404",
  ]);
  expect(await client.files.retrieve(ended.output_file_id!)).toMatchObject({
    object: "file",
    purpose: "batch_output",
    filename: `${batch.id}_output.jsonl`,
    status: "processed",
  });
});

test("chat lines are answered at their endpoint", async () => {
  const body = { messages: [{ role: "user", content: "How many shapes are there?" }], max_tokens: 4 };
  const input_file_id = await upload([line("chat", body, "/v1/chat/completions")]);
  const metadata = { purpose: "a test" };
  const batch = await client.batches.create({
    input_file_id,
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
    metadata,
  });
  const ended = await whenEnded(batch);
  expect(ended).toMatchObject({ status: "completed", metadata, endpoint: "/v1/chat/completions" });
  const [answer] = await resultsOf(ended.output_file_id);
  expect(answer!.response?.body).toMatchObject({ object: "chat.completion", model: "fovea-shapes" });
});

test("lines of Responses are answered, and count in the usage", async () => {
  const body = { input: "How many shapes are there?", max_output_tokens: 16 };
  const input_file_id = await upload(["a", "b"].map((id) => line(id, body, "/v1/responses")));
  const batch = await client.batches.create({ input_file_id, endpoint: "/v1/responses", completion_window: "24h" });
  const ended = await whenEnded(batch);
  const answers = await resultsOf(ended.output_file_id);
  const usages = answers.map(({ response }) => (response!.body as OpenAI.Responses.Response).usage!);
  const sum = (name: "input_tokens" | "output_tokens") => usages.reduce((total, usage) => total + usage[name], 0);
  expect(usages).toHaveLength(2);
  expect(ended.usage).toMatchObject({ input_tokens: sum("input_tokens"), output_tokens: sum("output_tokens") });
});

// Elsewhere, the system does not list the open files of a process.
test.runIf(process.platform === "linux")("HEAD of a file's content leaves no file open", async () => {
  const text = "x".repeat(900 * 1024);
  const id = await upload(text);
  const response = await fetch(`${service.baseUrl}/v1/files/${id}/content`, { method: "HEAD" });
  expect([response.status, response.headers.get("content-length")]).toEqual([200, String(text.length)]);
  const open = await Promise.all(
    (await readdir("/proc/self/fd")).map((number) => readlink(`/proc/self/fd/${number}`).catch(() => "")),
  );
  expect(open.filter((path) => path.endsWith(id))).toEqual([]);
  const missing = await fetch(`${service.baseUrl}/v1/files/file-none/content`, { method: "HEAD" });
  expect(missing.status).toBe(404);
});

describe("an invalid file fails the batch, lists the invalid lines, and answers none", () => {
  const good = line("a", { prompt: "a", max_tokens: 1 });
  test.for<[string, string | object[], object]>([
    ["not JSONL", "name,age\nx,3\n", { code: "invalid_json", line: 1, param: null }],
    ["empty", "\n\n", { code: "empty_file", line: null }],
    [
      "a line for another endpoint",
      [good, line("b", {}, "/v1/chat/completions")],
      { code: "invalid_value", line: 2, param: "url" },
    ],
    ["one id twice", [good, line("b", {}), good], { code: "duplicate_custom_id", line: 3, param: "custom_id" }],
    [
      "too many lines",
      Array.from({ length: 501 }, (_, index) => line(`a-${index}`, {})),
      { code: "too_many_lines", line: null },
    ],
  ])("%s", async ([, lines, error]) => {
    const ended = await whenEnded(await queue(lines));
    expect(ended).toMatchObject({
      status: "failed",
      errors: { object: "list", data: [error, ...(ended.errors?.data ?? []).slice(1)] },
      output_file_id: null,
      error_file_id: null,
    });
    expect(ended.failed_at).toBeGreaterThanOrEqual(ended.created_at);
  });
});

test("a running batch is cancelled: its answers are kept, and no more lines start", async () => {
  const lines = Array.from({ length: 300 }, (_, index) => line(`line-${index}`, long));
  const batch = await queue(lines);
  await expect.poll(async () => (await client.batches.retrieve(batch.id)).request_counts?.completed).toBeGreaterThan(0);
  expect(await client.batches.cancel(batch.id)).toMatchObject({ status: "cancelling" });
  expect((await client.batches.cancel(batch.id)).status).toMatch(/^cancell/);
  const ended = await whenEnded(batch);
  expect(ended.status).toBe("cancelled");
  expect(ended.cancelling_at).toBeLessThanOrEqual(ended.cancelled_at!);
  const answers = await resultsOf(ended.output_file_id);
  expect(answers.length).toBe(ended.request_counts?.completed);
  expect(answers.length).toBeLessThan(300);
  expect((await client.batches.cancel(batch.id)).status).toBe("cancelled");
});

test("a waiting batch is cancelled at once, and those before it continue", async () => {
  const lines = Array.from({ length: 100 }, (_, index) => line(`line-${index}`, long));
  const running: OpenAI.Batch[] = [];
  for (let count = 0; count < 4; count++) running.push(await queue(lines));
  const waiting = await queue(lines);
  await expect.poll(async () => (await client.batches.retrieve(running[3]!.id)).status).toBe("in_progress");
  await client.batches.cancel(waiting.id);
  expect(await client.batches.retrieve(waiting.id)).toMatchObject({ status: "cancelled", output_file_id: null });
  expect((await client.batches.retrieve(running[0]!.id)).status).toBe("in_progress");
  for (const batch of running) await client.batches.cancel(batch.id);
  for (const batch of running) expect((await whenEnded(batch)).status).toBe("cancelled");
});

test("requests are answered next to a batch that uses all the sequences of batches", async () => {
  const batch = await queue(Array.from({ length: 100 }, (_, index) => line(`line-${index}`, long)));
  await expect.poll(async () => (await client.batches.retrieve(batch.id)).status).toBe("in_progress");
  for (let count = 0; count < 5; count++) {
    await client.completions.create({ model: "fovea-shapes", prompt: "a", max_tokens: 2 });
  }
  expect((await client.batches.retrieve(batch.id)).status).toBe("in_progress");
  await client.batches.cancel(batch.id);
  await whenEnded(batch);
});

test("lists are in pages, newest first", async () => {
  const ids: string[] = [];
  for (let count = 0; count < 3; count++) ids.unshift(await upload("x"));
  const all = [];
  for await (const file of client.files.list({ limit: 2, purpose: "batch" })) all.push(file.id);
  expect(all.slice(0, 3)).toEqual(ids);
  const oldest = await client.files.list({ limit: 1, order: "asc" });
  expect(oldest.data[0]!.id).toBe(all.at(-1));
  const outputs = await client.files.list({ purpose: "batch_output" });
  expect(new Set(outputs.data.map(({ purpose }) => purpose))).toEqual(new Set(["batch_output"]));

  const batches = await client.batches.list({ limit: 1 });
  expect(batches.data).toHaveLength(1);
  expect(batches.has_more).toBe(true);
  const next = await batches.getNextPage();
  expect(next.data[0]!.created_at).toBeLessThanOrEqual(batches.data[0]!.created_at);
});

test("a deleted file is unknown to every route", async () => {
  const id = await upload("{}");
  expect(await client.files.retrieve(id)).toMatchObject({ id, bytes: 2, filename: "in.jsonl", purpose: "batch" });
  expect(await client.files.delete(id)).toEqual({ id, object: "file", deleted: true });
  const unknown = { status: 404, code: "not_found", param: "id" };
  await expect(client.files.retrieve(id)).rejects.toMatchObject(unknown);
  await expect(client.files.content(id)).rejects.toMatchObject(unknown);
  await expect(client.files.delete(id)).rejects.toMatchObject(unknown);
});

describe("an invalid request names its field", () => {
  const post = (path: string, body: object) =>
    fetch(`${service.baseUrl}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });

  test.for<[object, string]>([
    [{}, "input_file_id"],
    [{ input_file_id: "file-unknown" }, "input_file_id"],
    [{ input_file_id: "../../etc/passwd" }, "input_file_id"],
    [{ endpoint: "/v1/moderations" }, "endpoint"],
    [{ completion_window: "1h" }, "completion_window"],
    [{ metadata: { key: 3 } }, "metadata.key"],
    [{ metadata: { key: "x".repeat(513) } }, "metadata.key"],
    [{ metadata: Object.fromEntries(Array.from({ length: 17 }, (_, index) => [`key${index}`, ""])) }, "metadata"],
    [{ output_expires_after: { anchor: "created_at", seconds: 3599 } }, "output_expires_after.seconds"],
    [{ output_expires_after: { anchor: "completed_at", seconds: 3600 } }, "output_expires_after.anchor"],
    [{ output_expires_after: 3600 }, "output_expires_after"],
  ])("%j", async ([change, param]) => {
    const body = { input_file_id: await upload("{}"), endpoint, completion_window: "24h", ...change };
    const response = await post("/v1/batches", "input_file_id" in change || param !== "input_file_id" ? body : change);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { type: "invalid_request_error", param } });
  });

  test("lifetimes of files and results are shown, and an expired file is named as such", async () => {
    const file = await toFile(Buffer.from(JSON.stringify(line("a", { prompt: "a", max_tokens: 1 }))), "in.jsonl");
    const expires_after = { anchor: "created_at", seconds: 7200 } as const;
    const input = await client.files.create({ file, purpose: "batch", expires_after });
    expect(input.expires_at).toBe(input.created_at + 7200);
    const output_expires_after = { anchor: "created_at", seconds: 3600 } as const;
    const order = { input_file_id: input.id, endpoint, completion_window: "24h", output_expires_after } as const;
    const { output_file_id: id } = await whenEnded(await client.batches.create(order));
    const output = await client.files.retrieve(id!);
    expect(output.expires_at).toBe(output.created_at + 3600);
    const { created_at, expires_at } = await client.files.retrieve(await upload("{}"));
    expect(expires_at).toBe(created_at + 30 * 86_400);
    const old = `file-${"0".repeat(12)}${"a".repeat(32)}`;
    await expect(client.files.content(old)).rejects.toMatchObject({ status: 404, code: "file_expired" });
    await expect(client.files.content(old.replace("a", "g"))).rejects.toMatchObject({ code: "not_found" });
  });

  test("results are rejected as input, and an ended batch cannot be cancelled", async () => {
    const ended = await whenEnded(await queue([line("a", { prompt: "a", max_tokens: 1 })]));
    const input_file_id = ended.output_file_id!;
    await expect(client.batches.create({ input_file_id, endpoint, completion_window: "24h" })).rejects.toMatchObject({
      status: 400,
      param: "input_file_id",
    });
    await expect(client.batches.cancel(ended.id)).rejects.toMatchObject({ status: 409, code: "batch_ended" });
    for (const id of ["batch_unknown", "..%2f..%2fetc%2fpasswd", ended.id.replace(/.$/, "x")]) {
      const response = await fetch(`${service.baseUrl}/v1/batches/${id}`);
      expect(response.status).toBe(404);
    }
  });

  test.for(["limit=0", "limit=1000", "limit=x", "after=file-1", "order=up"])("of a list: %s", async (query) => {
    const response = await fetch(`${service.baseUrl}/v1/batches?${query}`);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { param: query.split("=")[0] } });
  });
});

test("an API key does not see the uploads and batches of another key", async () => {
  await using keyed = await startService({ BATCH_STORE: join(folder.path, "keyed"), API_KEY: "one,two" });
  const [one, two] = [clientOf(keyed, "one"), clientOf(keyed, "two")];
  const batch = await queue([line("a", { prompt: "a", max_tokens: 1 })], one);
  await expect.poll(async () => (await one.batches.retrieve(batch.id)).status).toBe("completed");
  await expect(two.batches.retrieve(batch.id)).rejects.toMatchObject({ status: 404 });
  await expect(two.batches.cancel(batch.id)).rejects.toMatchObject({ status: 404 });
  await expect(two.files.content(batch.input_file_id)).rejects.toMatchObject({ status: 404 });
  await expect(
    two.batches.create({ ...batch, endpoint, completion_window: "24h", metadata: {} }),
  ).rejects.toMatchObject({
    param: "input_file_id",
  });
  expect((await two.files.list()).data).toEqual([]);
  expect((await two.batches.list()).data).toEqual([]);
  await expect(clientOf(keyed, "three").files.list()).rejects.toMatchObject({ status: 401 });
});

test("a store that cannot be written is reported, and the rest of the service continues", async () => {
  const file = join(folder.path, "a-file");
  await writeFile(file, "");
  await using broken = await startService({ BATCH_STORE: file });
  await expect(upload("x", clientOf(broken))).rejects.toMatchObject({ status: 503, code: "storage_unavailable" });
  expect(broken.log()).toContain("ENOTDIR");
  const answer = await clientOf(broken).completions.create({ model: "fovea-shapes", prompt: "a", max_tokens: 1 });
  expect(answer.choices).toHaveLength(1);
});

test("a service without a store has no batches", async () => {
  await using none = await startService({ BATCH_STORE: "none" });
  await expect(clientOf(none).files.list()).rejects.toMatchObject({ status: 404, code: "batches_off" });
  await expect(clientOf(none).batches.list()).rejects.toMatchObject({ status: 404, code: "batches_off" });
});

test("the metrics count batches and lines", async () => {
  const text = await (await fetch(`${service.baseUrl}/metrics`)).text();
  expect(text).toMatch(/^fovea_batches_total\{status="completed",.*\} [1-9]/m);
  expect(text).toMatch(/^fovea_batches_total\{status="cancelled",.*\} 7$/m);
  expect(text).toMatch(/^fovea_batch_lines_total\{outcome="failed",.*\} 2$/m);
  expect(text).toMatch(/^fovea_batches_running\{.*\} 0$/m);
});
