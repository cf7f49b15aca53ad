/** Pictures and documents that requests name by the ids of uploaded files, with the shipped checkpoint. */
import { readFile } from "node:fs/promises";
import OpenAI, { toFile } from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";

import { pdfOfPictures } from "../support/requests/pdf-writer.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

const examples = new URL("../../models/fovea-shapes/examples/", import.meta.url);
const picture = await readFile(new URL("scene.png", examples));
const document = await pdfOfPictures(new URL("scene.png", examples));
const question = { type: "text", text: "Describe the picture." };
const answer = /^A large red circle in the top left, /;

let folder: TemporaryFolder;
let service: RunningService;
let client: OpenAI;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  service = await startService({
    BATCH_STORE: folder.path,
    API_KEY: "one,two",
    MAX_DOCUMENT_BYTES: "1MiB",
    LIMIT_MM_PER_PROMPT: "image=2",
  });
  client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "one", maxRetries: 0 });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

async function upload(bytes: Uint8Array, filename: string, purpose: OpenAI.FilePurpose = "user_data"): Promise<string> {
  return (await client.files.create({ file: await toFile(bytes, filename), purpose })).id;
}

/** The answer to a body of one of the routes. */
async function ask(path: string, body: object, key = "one"): Promise<{ status: number; text: string }> {
  const response = await fetch(`${service.baseUrl}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-api-key": key, authorization: `Bearer ${key}` },
    body: JSON.stringify({ temperature: 0, ...body }),
  });
  return { status: response.status, text: await response.text() };
}

const askAbout = (part: object, key?: string): ReturnType<typeof ask> =>
  ask("/v1/chat/completions", { messages: [{ role: "user", content: [part, question] }] }, key);

async function textOf(asked: ReturnType<typeof ask>): Promise<string> {
  const { status, text } = await asked;
  expect([status, text]).toEqual([200, expect.any(String)]);
  const body = JSON.parse(text) as {
    readonly choices?: readonly { readonly message: { readonly content: string } }[];
    readonly content?: readonly { readonly text: string }[];
    readonly output?: readonly { readonly content: readonly { readonly text: string }[] }[];
  };
  const block = body.content ?? body.output?.[0]?.content;
  return body.choices?.[0]?.message.content ?? block?.[0]?.text ?? "";
}

test("a picture is named by its id in every route", async () => {
  const file_id = await upload(picture, "scene.png", "vision");
  const image = { type: "input_image", file_id };
  const input = [{ role: "user", content: [image, { ...question, type: "input_text" }] }];
  expect(await textOf(ask("/v1/responses", { input }))).toMatch(answer);
  expect(await textOf(askAbout(image))).toMatch(answer);
  expect(await textOf(askAbout({ type: "image_url", image_url: { url: `file-id:${file_id}` } }))).toMatch(answer);
  const block = { type: "image", source: { type: "file", file_id } };
  const messages = [{ role: "user", content: [block, question] }];
  expect(await textOf(ask("/v1/messages", { messages, max_tokens: 100 }))).toMatch(answer);
});

test("a document is named by its id in every route", async () => {
  const file_id = await upload(document, "scene.pdf");
  const file = { type: "input_file", file_id };
  const input = [{ role: "user", content: [file, { ...question, type: "input_text" }] }];
  expect(await textOf(ask("/v1/responses", { input }))).toMatch(answer);
  expect(await textOf(askAbout({ type: "file", file: { file_id } }))).toMatch(answer);
  const block = { type: "document", source: { type: "file", file_id } };
  const messages = [{ role: "user", content: [block, question] }];
  expect(await textOf(ask("/v1/messages", { messages, max_tokens: 100 }))).toMatch(answer);
});

test("a picture that is known is not read again, and not shown any more once its file is deleted", async () => {
  const file_id = await upload(picture, "again.png", "assistants");
  const image = { type: "input_image", file_id };
  const hits = async (): Promise<number> => {
    const text = await (await fetch(`${service.baseUrl}/metrics`)).text();
    return Number(/^fovea_cache_hits_total\{cache="source",tier="memory",[^}]*\} (\d+)$/m.exec(text)![1]);
  };
  expect(await textOf(askAbout(image))).toMatch(answer);
  const before = await hits();
  expect(await textOf(askAbout(image))).toMatch(answer);
  expect(await hits()).toBe(before + 1);
  await client.files.delete(file_id);
  expect((await askAbout(image)).status).toBe(400);
});

test("a file belongs to the key that uploaded it", async () => {
  const file_id = await upload(document, "mine.pdf");
  const { status, text } = await askAbout({ type: "file", file: { file_id } }, "two");
  expect(status).toBe(400);
  expect(JSON.parse(text)).toMatchObject({
    error: {
      code: "invalid_image_reference",
      message: expect.stringMatching(/^The document "file-\w+" is not an uploaded file\./),
      param: "messages[0].content[0].file",
    },
  });
});

test.for<[string, object, string]>([
  ["a picture", { type: "input_image", file_id: "file-1" }, "messages[0].content[0].file_id"],
  ["a document", { type: "input_file", file_id: "../a" }, "messages[0].content[0].file_id"],
  ["a video", { type: "video_url", video_url: "file-id:file-1" }, "messages[0].content[0].video_url"],
])("%s with an unknown id is rejected by the name of its field", async ([, part, param]) => {
  const { status, text } = await askAbout(part);
  expect(status).toBe(400);
  expect(JSON.parse(text)).toMatchObject({
    error: { param, message: expect.stringContaining("not an uploaded file") },
  });
});

test("a file may be larger than a document", async () => {
  const file_id = await upload(Buffer.concat([document, Buffer.alloc(2 ** 20)]), "large.pdf");
  const { status, text } = await askAbout({ type: "input_file", file_id });
  expect(status).toBe(400);
  expect(JSON.parse(text)).toMatchObject({
    error: { code: "document_too_large", message: expect.stringContaining("MAX_DOCUMENT_BYTES sets the limit") },
  });
});

test("a line of a batch names the files of its tenant", async () => {
  const file_id = await upload(document, "scene.pdf");
  const body = {
    messages: [{ role: "user", content: [{ type: "file", file: { file_id } }, question] }],
    temperature: 0,
  };
  const line = { custom_id: "a", method: "POST", url: "/v1/chat/completions", body };
  const input = await upload(Buffer.from(JSON.stringify(line)), "in.jsonl", "batch");
  const order = { endpoint: "/v1/chat/completions", completion_window: "24h" } as const;
  const { id } = await client.batches.create({ ...order, input_file_id: input });
  await expect.poll(async () => (await client.batches.retrieve(id)).status).toBe("completed");
  const { output_file_id: output } = await client.batches.retrieve(id);
  const { response } = (await (await client.files.content(output!)).json()) as {
    readonly response: { readonly body: OpenAI.ChatCompletion };
  };
  expect(response.body.choices[0]?.message.content).toMatch(answer);
  await expect(client.batches.create({ ...order, input_file_id: file_id })).rejects.toMatchObject({
    status: 400,
    message: expect.stringContaining("was not uploaded with the purpose batch"),
  });
});

test("files are listed by their purpose, and come back with the extension of their name", async () => {
  const id = await upload(document, "a bill of “May”.PDF");
  const listed = (await client.files.list({ purpose: "user_data" })).data;
  expect(listed[0]).toMatchObject({
    id,
    purpose: "user_data",
    filename: "a bill of “May”.PDF",
    bytes: document.length,
  });
  expect(listed.every(({ purpose }) => purpose === "user_data")).toBe(true);
  const content = await client.files.content(id);
  expect(content.headers.get("content-disposition")).toBe(`attachment; filename="${id}.PDF"`);
  expect(Buffer.from(await content.arrayBuffer())).toEqual(document);
});
