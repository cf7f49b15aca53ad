/** Pages of other origins, in Chromium: what ALLOWED_ORIGINS lets them send and read. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";
import { launchBrowser, openPage } from "../playground/browser.ts";

const TIMEOUT_MS = 300_000;
const pages = createServer((_, response) => {
  response.setHeader("Content-Type", "text/html");
  response.end("<!doctype html><title>A page</title>");
});
let browser: Browser;
let service: RunningService;
/** Of the same server: origins are names of hosts. */
let allowedOrigin: string;
let otherOrigin: string;

beforeAll(async () => {
  await new Promise<void>((resolve) => void pages.listen(0, "127.0.0.1", resolve));
  const { port } = pages.address() as AddressInfo;
  allowedOrigin = `http://127.0.0.1:${port}`;
  otherOrigin = `http://localhost:${port}`;
  service = await startService({ API_KEY: "a-key", ALLOWED_ORIGINS: allowedOrigin });
  browser = await launchBrowser();
}, TIMEOUT_MS);

afterAll(async () => {
  await browser.close();
  await service[Symbol.asyncDispose]();
  pages.close();
});

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly key: string;
  readonly body: object;
}

/** Null if the browser does not let the page have the answer. */
async function sendFrom(
  origin: string,
  sent: Sent,
): Promise<{ status: number; requestId: string | null; text: string } | null> {
  await using opened = await openPage(browser, origin);
  return await opened.page.evaluate(
    async ({ method, path, key, body }) => {
      try {
        // The clients of OpenAI and Anthropic add headers of their own.
        const headers = {
          Authorization: `Bearer ${key}`,
          "Content-Type": "application/json",
          "X-Stainless-OS": "Unknown",
        };
        const options = { method, headers, body: JSON.stringify(body) };
        const answer = await fetch(path, options);
        return { status: answer.status, requestId: answer.headers.get("X-Request-Id"), text: await answer.text() };
      } catch {
        return null;
      }
    },
    { ...sent, path: service.baseUrl + sent.path },
  );
}

const chat = { messages: [{ role: "user", content: "Is there a star?" }], temperature: 0 };
const question: Sent = { method: "POST", path: "/v1/chat/completions", key: "a-key", body: chat };

test("a page of an allowed origin reads answers, streams and errors", { timeout: TIMEOUT_MS }, async () => {
  const whole = await sendFrom(allowedOrigin, question);
  expect(whole).toMatchObject({ status: 200, requestId: expect.any(String), text: expect.stringContaining('"No"') });
  const stream = await sendFrom(allowedOrigin, { ...question, body: { ...chat, stream: true } });
  expect(stream).toMatchObject({ status: 200, text: expect.stringMatching(/^data: .*data: \[DONE\]\s*$/s) });
  const wrongKey = await sendFrom(allowedOrigin, { ...question, key: "another" });
  expect(wrongKey).toMatchObject({ status: 401, requestId: expect.any(String) });
  const wrongField = await sendFrom(allowedOrigin, { ...question, body: { ...chat, top_p: 7 } });
  expect(wrongField).toMatchObject({ status: 400, text: expect.stringContaining("top_p") });
  const wrongPath = await sendFrom(allowedOrigin, { ...question, path: "/v1/moderations" });
  expect(wrongPath).toMatchObject({ status: 404 });
});

test("a page of an allowed origin may put a prediction", { timeout: TIMEOUT_MS }, async () => {
  const prediction = { method: "PUT", path: "/predictions/p1", key: "a-key", body: { input: chat } };
  expect(await sendFrom(allowedOrigin, prediction)).toMatchObject({
    status: 200,
    text: expect.stringContaining("succeeded"),
  });
});

test("a page of another origin reads nothing", { timeout: TIMEOUT_MS }, async () => {
  expect(await sendFrom(otherOrigin, question)).toBeNull();
});
