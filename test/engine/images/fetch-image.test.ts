import { afterAll, beforeAll, expect, test } from "vitest";

import { createDataUrlImageSource } from "../../../engine/images/data-url-image-source.ts";
import { fetchImage } from "../../../engine/images/fetch-image.ts";
import { createHttpsImageSource } from "../../../engine/images/https-image-source.ts";
import type { ConnectedImageSource } from "../../../engine/images/image-source.ts";
import { pauseProcess } from "../../support/pause-process.ts";
import { makeCertificate } from "./certificate.ts";
import { startWebServer, type WebServer } from "./web-server.ts";

const certificate = makeCertificate();
let server: WebServer;
let web: ConnectedImageSource;

beforeAll(async () => {
  server = await startWebServer((request, response) => {
    if (request.url === "/silent") return;
    if (request.url === "/before-a-pause") {
      response.end("png");
      return pauseProcess(400);
    }
    if (request.url === "/picture") return setTimeout(() => response.end("png"), 20);
    const timer = setInterval(() => response.write("x"), 10);
    response.on("close", () => clearInterval(timer));
  }, certificate);
  web = createHttpsImageSource({ allowedPrivateHosts: [server.host], certificateAuthorities: certificate.cert });
});
afterAll(async () => {
  await web.close();
  await server.stop();
});

function fetchFrom(reference: string, signal = new AbortController().signal, fetchTimeoutMs = 5_000) {
  return fetchImage([createDataUrlImageSource(), web], reference, {
    signal,
    limits: { maxImageBytes: 10_000, fetchTimeoutMs },
  });
}

test.for(["data:;base64,Zm92ZWE=", "DATA:;base64,Zm92ZWE=", "DaTa:;BASE64,Zm92ZWE="])(
  "%s finds its source whatever the case of its scheme",
  async (reference) => {
    expect(Buffer.from(await fetchFrom(reference)).toString()).toBe("fovea");
  },
);

test.for([
  ["file:///etc/passwd", "has the scheme file:"],
  ["FILE:///etc/passwd", "has the scheme file:"],
  ["http://example.com/a.png", "has the scheme http:"],
  ["gopher://example.com/", "has the scheme gopher:"],
  ["javascript:alert(1)", "has the scheme javascript:"],
  ["/etc/passwd", "is not a URL"],
  ["a.png", "is not a URL"],
  ["", "is not a URL"],
  ["//example.com/a.png", "is not a URL"],
  ["iVBORw0KGgo=", "is not a URL"],
])("%j is rejected: it %s", async ([reference, reason]) => {
  await expect(fetchFrom(reference!)).rejects.toMatchObject({
    code: "invalid_image_reference",
    message: `The image reference "${reference}" ${reason}; supported schemes: data:, https:.`,
  });
});

test.for(["/silent", "/trickle"])("a host that answers %s is unreachable after the timeout", async (path) => {
  await expect(fetchFrom(`https://${server.host}${path}`, undefined, 100)).rejects.toMatchObject({
    code: "image_unreachable",
    message: `The image "https://${server.host}${path}" did not arrive within 100 ms.`,
    setting: "fetchTimeoutMs",
  });
});

test("a picture that arrived while the process was paused is in time", async () => {
  expect(await fetchFrom(`https://${server.host}/before-a-pause`, undefined, 200)).toHaveLength(3);
});

test.for([Number.POSITIVE_INFINITY, 2 ** 31, 59_999.5])("a time limit of %d ms is accepted", async (fetchTimeoutMs) => {
  expect(await fetchFrom(`https://${server.host}/picture`, undefined, fetchTimeoutMs)).toHaveLength(3);
});

test("an aborted request is reported as aborted, not as unreachable", async () => {
  const controller = new AbortController();
  const fetching = fetchFrom(`https://${server.host}/trickle`, controller.signal);
  setTimeout(() => controller.abort(), 50);
  await expect(fetching).rejects.toMatchObject({ code: "aborted" });
});

test("a message shows at most 60 characters of the reference and no control characters", async () => {
  const error = await fetchFrom(`ftp://\u001b[31m${"x".repeat(1_000_000)}`).catch((e: unknown) => e);
  const { message } = error as Error;
  expect(message).toContain(`"ftp://?[31m${"x".repeat(49)}…"`);
});

test.for<[string, number, number, string]>([
  ["a time limit", 50, 600_000, "image_unreachable"],
  ["an abort", 600_000, 50, "aborted"],
])("%s ends the wait for a source that ignores the signal", async ([, fetchTimeoutMs, abortMs, code]) => {
  const endless = { schemes: ["x"], fetch: () => new Promise<never>(() => {}) };
  const limits = { maxImageBytes: 10_000, fetchTimeoutMs };
  const bytes = fetchImage([endless], "x://picture", { signal: AbortSignal.timeout(abortMs), limits });
  await expect(bytes).rejects.toMatchObject({ code });
});
