import { expect, test } from "vitest";

import { HttpError } from "../../../functions/http/errors.ts";
import { receiveUpload } from "../../../functions/http/multipart-upload.ts";

const head = [
  "--xyz",
  'Content-Disposition: form-data; name="file"; filename="a.jsonl"',
  "Content-Type: application/jsonl",
  "",
  "",
].join("\r\n");

/** A request whose body has these pieces, and then stalls or ends. */
function requestOf(pieces: readonly (string | Promise<unknown>)[], isEndless: boolean) {
  const cancelled = Promise.withResolvers<void>();
  const queue = [...pieces];
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const piece = queue.shift();
      if (typeof piece === "string") return controller.enqueue(Buffer.from(piece));
      if (piece === undefined && !isEndless) return controller.close();
      await (piece ?? cancelled.promise);
    },
    cancel: () => cancelled.resolve(),
  });
  const headers = { "content-type": "multipart/form-data; boundary=xyz" };
  const request = new Request("http://localhost/v1/files", { method: "POST", headers, body, duplex: "half" });
  return { request, cancelled: cancelled.promise };
}

const bounds = { fileField: "file", maxFileBytes: 1000, limitName: "LIMIT", giveUp: async () => {} };

async function takeAll(chunks: AsyncIterable<Uint8Array>): Promise<string> {
  const all: Uint8Array[] = [];
  for await (const chunk of chunks) all.push(chunk);
  return Buffer.concat(all).toString();
}

test.for([
  ["before its first byte", []],
  ["in its head", ["--xyz\r\n"]],
  ["in its file", [head, "half"]],
  ["behind its file", [head, "whole\r\n--xyz\r\n"]],
] as const)("an upload that stalls %s ends with 408, and so does its consumer", async ([, pieces]) => {
  const { request, cancelled } = requestOf(pieces, true);
  const taken: unknown[] = [];
  const received = receiveUpload(request, {
    ...bounds,
    idleMs: 20,
    async take(chunks) {
      try {
        return await takeAll(chunks);
      } catch (error) {
        taken.push(error);
        throw error;
      }
    },
  });
  await expect(received).rejects.toMatchObject({ status: 408, code: "body_stalled", headers: { Connection: "close" } });
  for (const error of taken) expect(error).toBeInstanceOf(HttpError);
  // The client's connection is released.
  await cancelled;
});

test("time that the consumer needs does not count as a stall", async () => {
  // More than the streams between the request and the consumer buffer.
  const pieces = Array.from({ length: 10 }, () => "x".repeat(100_000));
  const { request } = requestOf([head, ...pieces, "\r\n--xyz--\r\n"], false);
  const { file } = await receiveUpload(request, {
    ...bounds,
    maxFileBytes: 1_000_000,
    idleMs: 20,
    async take(chunks) {
      let numBytes = 0;
      for await (const chunk of chunks) {
        if (numBytes < 100_000) await new Promise((resolve) => setTimeout(resolve, 100));
        numBytes += chunk.byteLength;
      }
      return numBytes;
    },
  });
  expect(file?.taken).toBe(1_000_000);
});

test.for([
  ["in a field", '--xyz\r\nContent-Disposition: form-data; name="other"\r\n\r\n'],
  ["in a file of another name", '--xyz\r\nContent-Disposition: form-data; name="other"; filename="a"\r\n\r\n'],
  ["before its first part", ""],
  ["behind its last part", "--xyz--\r\n"],
] as const)("a form of unknown length that goes on %s ends with 413", async ([, start]) => {
  const pieces = Array.from({ length: 100 }, () => "x".repeat(10_000));
  const { request, cancelled } = requestOf([start, ...pieces], true);
  const received = receiveUpload(request, { ...bounds, idleMs: 20, take: takeAll });
  await expect(received).rejects.toMatchObject({
    status: 413,
    code: "body_too_large",
    headers: { Connection: "close" },
  });
  await cancelled;
});
