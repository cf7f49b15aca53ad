import { createServer } from "node:http";
import type { RequestListener, Server } from "node:http";
import type { AddressInfo } from "node:net";
import sharp from "sharp";
import { afterAll, beforeAll, expect, test } from "vitest";

import { writePng } from "../engine/images/computed-picture.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";

let service: RunningService;
let images: Server;
let imagesUrl: string;

/** The image server's answers by path. */
const imageRoutes: Record<string, RequestListener> = {
  "/good.png": (_, response) => void goodPng().then((bytes) => response.end(bytes)),
  "/missing.png": (_, response) => response.writeHead(404).end(),
  "/to-localhost": (_, response) => response.writeHead(302, { Location: "http://127.0.0.1:1/secret" }).end(),
  "/to-metadata": (_, response) =>
    response.writeHead(302, { Location: "http://169.254.169.254/latest/meta-data/" }).end(),
  "/silent": () => {},
  "/endless": (_, response) => {
    const chunk = Buffer.alloc(65_536, 0x89);
    const write = (): void => {
      while (!response.destroyed && response.write(chunk));
      if (!response.destroyed) response.once("drain", write);
    };
    write();
  },
};

beforeAll(async () => {
  images = createServer((request, response) => imageRoutes[request.url ?? ""]!(request, response));
  const { promise, resolve } = Promise.withResolvers<void>();
  images.listen(0, "127.0.0.1", resolve);
  await promise;
  const host = `127.0.0.1:${(images.address() as AddressInfo).port}`;
  imagesUrl = `http://${host}`;
  service = await startService({
    ALLOW_HTTP_IMAGES: "true",
    ALLOWED_PRIVATE_HOSTS: host,
    IMAGE_FETCH_TIMEOUT_SECONDS: "0.5",
    MAX_IMAGE_BYTES: "1MiB",
    MAX_MODEL_LEN: "512",
    LIMIT_MM_PER_PROMPT: '{"image": 4}',
    // Nothing listens there: credentials are not looked up on this machine, and no request leaves it.
    AWS_ENDPOINT_URL_S3: "http://127.0.0.1:1",
  });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  images.closeAllConnections();
  images.close();
});

async function post(path: string, fields: object) {
  const response = await fetch(`${service.baseUrl}/v1/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(fields),
  });
  return { status: response.status, body: (await response.json()) as Answer };
}

const ask = (content: unknown, fields: object = {}) =>
  post("chat/completions", { messages: [{ role: "user", content }], max_tokens: 4, temperature: 0, ...fields });

const hello = { messages: [{ role: "user", content: "Hello?" }], max_tokens: 4 };

interface Answer {
  readonly error?: { readonly code: string; readonly message: string; readonly param: string | null };
  readonly choices?: readonly { readonly message: { readonly content: string }; readonly finish_reason: string }[];
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number };
}

const about = (url: string) => [
  { type: "image_url", image_url: { url } },
  { type: "text", text: "What is in the picture?" },
];

function dataUrl(type: string, bytes: Uint8Array): string {
  return `data:${type};base64,${Buffer.from(bytes).toString("base64")}`;
}

function goodPng(): Promise<Buffer> {
  return sharp({ create: { width: 64, height: 64, channels: 3, background: "red" } })
    .png()
    .toBuffer();
}

/** Its header announces 2.5 gigapixels, but it contains one byte of them. */
function hugePng(): Buffer {
  return writePng({ width: 50_000, height: 50_000, bitDepth: 8, colourType: "rgb" }, Buffer.from([0]));
}

const svg = Buffer.from(
  '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>',
);
const gif = Buffer.from("R0lGODlhAQABAIAAAP8AAP///yH5BAAAAAAALAAAAAABAAEAAAICRAEAOw==", "base64");

async function animatedWebp(): Promise<Buffer> {
  const frames = Buffer.alloc(8 * 16 * 3, 0x40);
  return sharp(frames, { raw: { width: 8, height: 16, channels: 3, pageHeight: 8 } })
    .webp({ loop: 0, delay: [50, 50] })
    .toBuffer();
}

test.for<[string, () => Promise<string> | string, number, string]>([
  ["a PNG header of 50,000 x 50,000", () => dataUrl("image/png", hugePng()), 400, "image_too_large"],
  ["an SVG", () => dataUrl("image/svg+xml", svg), 400, "invalid_image"],
  ["an SVG called PNG", () => dataUrl("image/png", svg), 400, "invalid_image"],
  ["text called PNG", () => dataUrl("image/png", Buffer.from("hello")), 400, "invalid_image"],
  ["a truncated PNG", async () => dataUrl("image/png", (await goodPng()).subarray(0, 60)), 400, "invalid_image"],
  ["2 MiB where 1 MiB is the limit", () => dataUrl("image/png", Buffer.alloc(2 ** 21)), 400, "image_too_large"],
  ["a data URL without a comma", () => "data:image/png;base64", 400, "invalid_image_reference"],
  ["a data URL that is not base64", () => "data:image/png,abc", 400, "invalid_image_reference"],
  ["a file URL", () => "file:///etc/passwd", 400, "invalid_image_reference"],
  ["no URL at all", () => "picture.png", 400, "invalid_image_reference"],
  ["s3:// without a key", () => "s3://bucket", 400, "invalid_image_reference"],
  ["s3:// that nobody serves", () => "s3://bucket/key.png", 422, "image_unreachable"],
  ["a missing image", () => `${imagesUrl}/missing.png`, 422, "image_unreachable"],
  ["an image that never answers", () => `${imagesUrl}/silent`, 422, "image_unreachable"],
  ["an image that never ends", () => `${imagesUrl}/endless`, 400, "image_too_large"],
  ["a redirect to 127.0.0.1", () => `${imagesUrl}/to-localhost`, 400, "invalid_image_reference"],
  ["a redirect to 169.254.169.254", () => `${imagesUrl}/to-metadata`, 400, "invalid_image_reference"],
  ["169.254.169.254 itself", () => "http://169.254.169.254/latest/meta-data/", 400, "invalid_image_reference"],
])("%s is rejected, and the next request is served", async ([, urlOf, status, code]) => {
  const refused = await ask(about(await urlOf()));
  expect({ status: refused.status, code: refused.body.error?.code }).toEqual({ status, code });
  expect(refused.body.error?.param).toBe("messages[0].content[0].image_url");
  expect(refused.body.error?.message).not.toMatch(/\/home|node_modules|\.ts\b|secret/);
  expect((await ask("Hello?")).status).toBe(200);
});

test("a GIF named PNG, an animated WebP and an image from the web are accepted", async () => {
  const urls = [dataUrl("image/png", gif), dataUrl("image/webp", await animatedWebp()), `${imagesUrl}/good.png`];
  for (const url of urls) {
    const { status, body } = await ask(about(url));
    expect(status).toBe(200);
    expect(body.usage?.prompt_tokens).toBeGreaterThan(64);
  }
});

test("more images than allowed are rejected with both numbers", async () => {
  const part = { type: "image_url", image_url: { url: dataUrl("image/png", await goodPng()) } };
  const { status, body } = await ask(Array.from({ length: 5 }, () => part));
  expect(status).toBe(400);
  expect(body.error).toMatchObject({ code: "too_many_images", param: "messages" });
  expect(body.error?.message).toMatch(/5 images; the limit is 4/);
});

test("a prompt of 100,000 tokens is rejected with both numbers", async () => {
  const { status, body } = await ask("shape ".repeat(100_000));
  expect(status).toBe(400);
  expect(body.error).toMatchObject({ code: "context_length_exceeded", param: "messages" });
  expect(body.error?.message).toMatch(/\d+ tokens; .*512/);
});

const longText = "x".repeat(10_000_000);
const minusOnes = (count: number): number[] => Array.from({ length: count }, () => -1);

test.for<[string, string, object, string]>([
  ["30 MB of token ids", "chat/completions", { allowed_token_ids: minusOnes(10_000_000) }, "allowed_token_ids"],
  ["3 MB of token ids", "chat/completions", { allowed_token_ids: minusOnes(1_000_000) }, "allowed_token_ids"],
  ["a prompt of 10 MB", "completions", { prompt: longText }, "prompt"],
  ["a prompt of a million token ids", "completions", { prompt: minusOnes(1_000_000).map(() => 5) }, "prompt"],
  ["a stop string of 10 MB", "completions", { prompt: "a", stop: longText }, "stop"],
  ["a message of 10 MB", "chat/completions", { messages: [{ role: "user", content: longText }] }, "messages"],
  [
    "a data URL of 10 MB",
    "chat/completions",
    { messages: [{ role: "user", content: about(`data:image/png;base64,${longText}`) }] },
    "messages[0].content[0].image_url",
  ],
])("%s are rejected, and a request beside them is answered", async ([, path, fields, param]) => {
  const [refused, beside] = await Promise.all([post(path, { ...hello, ...fields }), post("chat/completions", hello)]);
  expect(refused).toMatchObject({ status: 400, body: { error: { param } } });
  expect(beside.status).toBe(200);
});

test("token ids outside the vocabulary are rejected", async () => {
  const response = await fetch(`${service.baseUrl}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ prompt: [5, 1e9] }),
  });
  expect(response.status).toBe(400);
  expect(((await response.json()) as Answer).error).toMatchObject({ param: "prompt" });
});

test("a request for more tokens than fit gets as many as fit", async () => {
  const { status, body } = await ask("Hello?", { max_tokens: 1e9, ignore_eos: true });
  expect(status).toBe(200);
  expect(body.choices?.[0]?.finish_reason).toBe("length");
  expect(body.usage!.prompt_tokens + body.usage!.completion_tokens).toBe(512);
});

test("none of these requests was logged as our failure", () => {
  expect(service.log()).not.toContain('"level":"error"');
});
