/** Documents over HTTP with the shipped checkpoint: from every source, within the limits of settings. */
import { afterAll, beforeAll, expect, test } from "vitest";

import { pdfOfPictures, writePdf } from "../support/requests/pdf-writer.ts";
import { startMediaServers } from "../support/servers/media-servers.ts";
import type { MediaServers } from "../support/servers/media-servers.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";

interface Answer {
  readonly error?: { readonly code: string; readonly message: string; readonly param: string | null };
  readonly choices?: readonly { readonly message: { readonly content: string } }[];
  readonly usage?: {
    readonly prompt_tokens: number;
    readonly prompt_tokens_details: { readonly multimodal_tokens: { readonly image: number } };
  };
}

const folder = new URL("../../models/fovea-shapes/examples/", import.meta.url);
const file = await pdfOfPictures(new URL("label.png", folder), new URL("scene.png", folder));
/** Of every picture of this model. */
const TOKENS_PER_PAGE = 64;

let servers: MediaServers;
let service: RunningService;
let host: string;

beforeAll(async () => {
  servers = await startMediaServers(file, { path: "/two.pdf", bucket: "papers", key: "a/two.pdf" });
  ({ host } = servers);
  service = await startService({
    ...servers.environment,
    LIMIT_MM_PER_PROMPT: "image=3",
    MAX_DOCUMENT_BYTES: "1MiB",
    DOCUMENT_RENDER_TIMEOUT_SECONDS: "3",
    IMAGE_FETCH_TIMEOUT_SECONDS: "3",
  });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await servers.stop();
});

async function ask(
  url: string,
  fields: object = {},
  text = "What does the label say?",
): Promise<{ readonly status: number; readonly body: Answer }> {
  const content = [
    { type: "document_url", document_url: url },
    { type: "text", text },
  ];
  const response = await fetch(`${service.baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ messages: [{ role: "user", content }], temperature: 0, ...fields }),
  });
  return { status: response.status, body: (await response.json()) as Answer };
}

const only = (page: number) => ({ media_io_kwargs: { document: { first_page: page, last_page: page } } });
const inline = (bytes: Uint8Array): string => `data:application/pdf;base64,${Buffer.from(bytes).toString("base64")}`;

test("a document is the same by data URL, over http and from S3", async () => {
  for (const url of [inline(file), `http://${host}/two.pdf`, "s3://papers/a/two.pdf"]) {
    const { body } = await ask(url, only(1));
    expect(body.choices?.[0]?.message.content).toMatch(/FOVEA/);
    const { body: second } = await ask(url, only(2), "Describe the picture.");
    expect(second.choices?.[0]?.message.content).toMatch(/^A large red circle in the top left, /);
    const { body: both } = await ask(url, { max_tokens: 1 });
    expect(both.usage?.prompt_tokens_details.multimodal_tokens).toEqual({ image: 2 * TOKENS_PER_PAGE });
  }
});

test("the text of a document takes no image tokens, and follows its page if both are asked for", async () => {
  const letter = inline(writePdf([{ width: 300, height: 300, lines: ["Dear Ann,", "see you in May."] }]));
  const usageOf = async (content: string) => {
    const { body } = await ask(letter, { max_tokens: 1, media_io_kwargs: { document: { content } } });
    return body.usage!;
  };
  const [images, text, both] = [await usageOf("images"), await usageOf("text"), await usageOf("both")];
  expect(text.prompt_tokens_details.multimodal_tokens.image).toBe(0);
  expect(text.prompt_tokens).toBeGreaterThan(images.prompt_tokens - TOKENS_PER_PAGE);
  expect(both.prompt_tokens).toBe(text.prompt_tokens + TOKENS_PER_PAGE);
  const { status, body } = await ask(inline(file), { media_io_kwargs: { document: { content: "text" } } });
  expect(status).toBe(400);
  expect(body.error).toMatchObject({
    code: "invalid_document",
    message: expect.stringMatching(/^Pages 1 to 2 have no text, .* Ask for images of the pages\./),
  });
});

test("a page that is cached is not rendered again, whichever document brings it", async () => {
  const hitsOf = async (): Promise<number> => {
    const text = await (await fetch(`${service.baseUrl}/metrics`)).text();
    return Number(/^fovea_cache_hits_total\{cache="processor",tier="memory",[^}]*\} (\d+)$/m.exec(text)![1]);
  };
  await ask(inline(file), only(2));
  const before = await hitsOf();
  await ask("s3://papers/a/two.pdf", only(2));
  expect(await hitsOf()).toBe(before + 1);
  await ask("s3://papers/a/two.pdf", { media_io_kwargs: { document: { first_page: 2, dpi: 100 } } });
  expect(await hitsOf()).toBe(before + 1);
});

/** Fills its page so often that rendering it in many pixels takes minutes. */
const slow = writePdf([{ width: 1000, height: 1000, operators: "0 0 1000 1000 re f\n".repeat(20_000) }]);

test.for<[string, () => string, object, number, string, RegExp]>([
  [
    "bytes of something else",
    () => "data:text/plain;base64,AAAA",
    {},
    400,
    "invalid_document",
    /cannot be read as a PDF/,
  ],
  ["an address without a file", () => `http://${host}/gone.pdf`, {}, 422, "image_unreachable", /^The document .* 404/],
  ["a key without an object", () => "s3://papers/none.pdf", {}, 422, "image_unreachable", /^The document/],
  [
    "an address of a private network",
    () => "http://127.0.0.1:1/a.pdf",
    {},
    400,
    "invalid_image_reference",
    /^The document's host .*ALLOWED_PRIVATE_HOSTS lists/,
  ],
  [
    "a file that does not arrive in time",
    () => `http://${host}/never.pdf`,
    {},
    422,
    "image_unreachable",
    /^The document .* did not arrive within 3000 ms\. IMAGE_FETCH_TIMEOUT_SECONDS sets/,
  ],
  [
    "too many bytes",
    () => inline(new Uint8Array(2 ** 20 + 1)),
    {},
    400,
    "document_too_large",
    /^The document has 1048577 bytes; the limit is 1048576\. MAX_DOCUMENT_BYTES sets the limit\.$/,
  ],
  [
    "a page that takes too long",
    () => inline(slow),
    { media_io_kwargs: { document: { dpi: 500 } } },
    400,
    "document_too_large",
    /^Reading the document takes longer than 3000 ms\. DOCUMENT_RENDER_TIMEOUT_SECONDS sets the limit\.$/,
  ],
])("is rejected, and the service goes on: %s", async ([, url, fields, status, code, message]) => {
  const { body, ...answer } = await ask(url(), fields);
  expect(answer.status).toBe(status);
  expect(body.error).toMatchObject({
    code,
    param: "messages[0].content[0].document_url",
    message: expect.stringMatching(message),
  });
  expect((await ask("s3://papers/a/two.pdf", only(1))).status).toBe(200);
});

test("more pages than allowed are rejected with how to choose fewer", async () => {
  const pages = Array.from({ length: 5 }, () => ({ width: 50, height: 50 }));
  const { status, body } = await ask(inline(writePdf(pages)));
  expect(status).toBe(400);
  expect(body.error).toMatchObject({
    code: "too_many_images",
    message: expect.stringMatching(
      /^The prompt has 4 images and pages of documents, or more; the limit is 3, set by the server\. Choose fewer pages by media_io_kwargs\.document\.first_page and media_io_kwargs\.document\.last_page\. LIMIT_MM_PER_PROMPT sets the limit\.$/,
    ),
  });
  const some = { max_tokens: 1, media_io_kwargs: { document: { first_page: 2, last_page: 4 } } };
  expect((await ask(inline(writePdf(pages)), some)).status).toBe(200);
});
