/** Lines whose pictures cannot be fetched for a while: they are tried again, and other lines pass them. */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import OpenAI, { toFile } from "openai";
import { expect, onTestFinished, test } from "vitest";

import type { LineAnswer } from "../../../functions/batch/answer-line.ts";
import { noLines } from "../../../functions/batch/result-file.ts";
import type { ResultLine } from "../../../functions/batch/result-line.ts";
import { runBatch } from "../../../functions/batch/run-batch.ts";
import { WorkWindow } from "../../../functions/batch/work-window.ts";
import { startService } from "../../support/service/running-service.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const responseOf = (statusCode: number) => ({ statusCode, requestId: "request", body: {} });
const answered: LineAnswer = { kind: "answered", response: responseOf(200) };
const unreachable: LineAnswer = { kind: "answered", response: responseOf(503), isTransient: true };

async function* linesOf(customIds: readonly string[]) {
  for (const [index, custom_id] of customIds.entries()) {
    const content = { custom_id, method: "POST", url: "/v1/completions", body: {} };
    yield { lineNumber: index + 1, text: JSON.stringify(content), problem: null };
  }
}

/** Runs lines one after the other. */
function start(
  customIds: readonly string[],
  answer: (customId: string) => LineAnswer,
  { firstMs = 1, maxNumTries = 100 } = {},
) {
  const written: string[] = [];
  const warnings: string[] = [];
  const stopping = new AbortController();
  const window = new WorkWindow(1, { maxLineBytes: 1000 });
  const summary = runBatch({
    lines: linesOf(customIds),
    done: noLines(),
    results: {
      append: async (line) => void written.push(`${line.custom_id} ${line.response?.status_code}`),
      close: async () => {},
    },
    prepare: ({ customId }) => ({ numSequences: 1, answer: async () => answer(customId) }),
    window,
    stopping,
    retries: { firstMs, mostMs: 4 * firstMs, maxNumTries },
    logger: { warn: (message) => void warnings.push(message) },
    onProgress() {},
  });
  return { summary, written, warnings, stopping, window };
}

const others = ["a", "b", "c", "d", "e", "f"];

test("lines are answered while others wait for their pictures, and those are answered when they can be fetched", async () => {
  const waiting = ["w", "x", "y", "z"];
  const left = new Set(others);
  const { summary, written, warnings } = start([...waiting, ...others], (customId) => {
    left.delete(customId);
    return waiting.includes(customId) && left.size > 0 ? unreachable : answered;
  });
  expect(await summary).toMatchObject({ numSucceeded: 10, numFailed: 0, isComplete: true });
  expect(written.slice(0, 6)).toEqual(others.map((id) => `${id} 200`));
  expect(written.toSorted()).toEqual([...others, ...waiting].map((id) => `${id} 200`));
  expect(warnings).toHaveLength(1);
});

test("a line whose picture can never be fetched has its error after the last try", async () => {
  let numTries = 0;
  const { summary, written, window } = start(
    ["w", "a"],
    (customId) => {
      if (customId === "a") return answered;
      numTries += 1;
      return unreachable;
    },
    { maxNumTries: 3 },
  );
  expect(await summary).toMatchObject({ numSucceeded: 1, numFailed: 1, isComplete: true });
  expect(numTries).toBe(3);
  expect(written).toEqual(["a 200", "w 503"]);
  expect([window.isEmpty, window.memory?.isEmpty]).toEqual([true, true]);
});

test("a batch that is stopped while a line waits for its picture leaves the line", async () => {
  const { summary, written, stopping, window } = start(["w"], () => unreachable, { firstMs: 600_000 });
  setTimeout(() => stopping.abort(), 20);
  expect(await summary).toMatchObject({ numSucceeded: 0, numFailed: 0, isComplete: false });
  expect(written).toEqual([]);
  expect([window.isEmpty, window.memory?.isEmpty]).toEqual([true, true]);
});

test("a batch is complete although the host of a picture answered with 500 for a while", async () => {
  const picture = await readFile("models/fovea-shapes/examples/circles.png");
  let isBroken = true;
  const web = createServer((_, response) => response.writeHead(isBroken ? 500 : 200).end(isBroken ? "" : picture));
  web.listen(0, "127.0.0.1");
  await once(web, "listening");
  onTestFinished(() => void web.close());
  const host = `127.0.0.1:${(web.address() as AddressInfo).port}`;
  await using folder = await createTemporaryFolder();
  await using service = await startService({
    ALLOW_HTTP_IMAGES: "true",
    ALLOWED_PRIVATE_HOSTS: host,
    BATCH_STORE: join(folder.path, "batches"),
  });
  const client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none" });
  const lineOf = (custom_id: string, content: object[]) => {
    const body = { messages: [{ role: "user", content }], max_tokens: 1 };
    return JSON.stringify({ custom_id, method: "POST", url: "/v1/chat/completions", body });
  };
  const lines = [
    lineOf("picture", [{ type: "image_url", image_url: { url: `http://${host}/${randomUUID()}.png` } }]),
    lineOf("text", [{ type: "text", text: "a" }]),
  ];
  const file = await toFile(Buffer.from(lines.join("\n")), "in.jsonl");
  const { id: input_file_id } = await client.files.create({ file, purpose: "batch" });
  const endpoint = "/v1/chat/completions";
  const { id } = await client.batches.create({ input_file_id, endpoint, completion_window: "24h" });
  const counts = async () => (await client.batches.retrieve(id)).request_counts;
  const expected = { total: 2, completed: 1, failed: 0 };
  await expect.poll(counts, { timeout: 60_000 }).toEqual(expected);
  await expect.poll(service.log, { timeout: 60_000 }).toContain("Lines with such pictures are tried again.");
  isBroken = false;
  await expect.poll(async () => (await client.batches.retrieve(id)).status, { timeout: 60_000 }).toBe("completed");
  const { output_file_id } = await client.batches.retrieve(id);
  const text = await (await client.files.content(output_file_id ?? "none")).text();
  const results = text.trim().split("\n");
  expect(results.map((line) => (JSON.parse(line) as ResultLine).custom_id)).toEqual(["text", "picture"]);
}, 120_000);
