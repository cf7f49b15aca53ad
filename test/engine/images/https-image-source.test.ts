import { lookup as systemLookup } from "node:dns";
import type { RequestListener } from "node:http";
import type { LookupFunction } from "node:net";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { EngineError } from "../../../engine/contract/errors.ts";
import { createHttpsImageSource, type HttpsImageSourceOptions } from "../../../engine/images/https-image-source.ts";
import type { ConnectedImageSource } from "../../../engine/images/image-source.ts";
import { testImageSource } from "../../contracts/image-source.ts";
import { makeCertificate } from "./certificate.ts";
import { startWebServer, type WebServer } from "./web-server.ts";

const certificate = makeCertificate();
const never = new AbortController().signal;
const picture = Buffer.from("a picture, for all the source knows");

/** A TLS server that answers by path; paths missing in the table are 404. */
function startTlsServer(routes: Readonly<Record<string, RequestListener>>): Promise<WebServer> {
  return startWebServer((request, response) => {
    const route = routes[request.url ?? ""];
    if (route === undefined) response.writeHead(404).end("not here");
    else route(request, response);
  }, certificate);
}

testImageSource("web addresses", async () => {
  const images = new Map<string, Uint8Array>();
  const server = await startWebServer((request, response) => {
    const bytes = images.get(request.url ?? "");
    if (bytes === undefined) return void response.writeHead(404).end();
    // Every second one in chunks, without a length.
    if (images.size % 2 === 0) response.setHeader("content-length", bytes.byteLength);
    response.end(bytes);
  }, certificate);
  const source = createHttpsImageSource({
    allowedPrivateHosts: [server.host],
    certificateAuthorities: certificate.cert,
  });
  return {
    source,
    async store(bytes) {
      const path = `/images/${images.size}.png?part=${images.size}`;
      images.set(path, bytes);
      return `https://${server.host}${path}`;
    },
    missing: [`https://${server.host}/none`, "https://no-such-host.invalid/a.png"],
    malformed: ["https://", "https://[::1", "http://example.com/", "https://user:secret@example.com/", "https://a b/"],
    async close() {
      await source.close();
      await server.stop();
    },
  };
});

test("fetches that need more connections than there may be are rejected, and those in progress go on", async () => {
  const arrived = Promise.withResolvers<void>();
  const proceed = Promise.withResolvers<void>();
  const [slow, other] = [
    await startWebServer((_, response) => {
      arrived.resolve();
      void proceed.promise.then(() => response.end(picture));
    }, null),
    await startWebServer((_, response) => void response.setHeader("connection", "close").end(picture), null),
  ];
  const source = createHttpsImageSource({
    allowHttp: true,
    allowedPrivateHosts: [slow.host, other.host],
    maxNumConnections: 1,
  });
  const fetchFrom = ({ host }: WebServer) =>
    source.fetch(`http://${host}/`, { signal: never, maxImageBytes: 1000, onBytes: undefined });
  const first = fetchFrom(slow);
  await arrived.promise;
  await expect(fetchFrom(other)).rejects.toMatchObject({
    code: "queue_full",
    message: expect.stringContaining("over 1"),
  });
  proceed.resolve();
  expect(Buffer.from(await first)).toEqual(picture);
  await source.disconnect();
  expect(Buffer.from(await fetchFrom(other))).toEqual(picture);
  await source.close();
  await Promise.all([slow.stop(), other.stop()]);
});

describe("a source that may reach one test server", () => {
  let server: WebServer;
  let source: ConnectedImageSource;
  let plainServer: WebServer;
  const counts = { flaky: 0, down: 0, gone: 0, torn: 0, secret: 0 };

  beforeAll(async () => {
    plainServer = await startWebServer((_, response) => void response.end(picture), null);
    server = await startTlsServer({
      "/picture": (_, response) => void response.end(picture),
      "/gzip": (_, response) => void response.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(picture)),
      "/br": (_, response) =>
        void response.writeHead(200, { "content-encoding": "br" }).end(brotliCompressSync(picture)),
      "/wrongly-gzip": (_, response) => void response.writeHead(200, { "content-encoding": "gzip" }).end(picture),
      "/wrongly-utf-8": (_, response) => void response.writeHead(200, { "content-encoding": "utf-8" }).end(picture),
      "/gzip-bomb": (_, response) =>
        void response.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(Buffer.alloc(1_000_001))),
      "/flaky": (_, response) => void (++counts.flaky < 3 ? response.writeHead(503).end() : response.end(picture)),
      "/down": (_, response) => void response.writeHead(++counts.down === 1 ? 408 : 429).end(),
      "/gone": (_, response) => void response.writeHead(410, { server: String(++counts.gone) }).end(),
      "/torn": (_, response) => {
        if (++counts.torn === 3) return void response.end(picture);
        response.writeHead(200, { "content-length": 1_000 });
        response.write("half", () => response.destroy());
      },
      "/endless": (_, response) => {
        const more = (): void => void response.write(Buffer.alloc(65_536), (error) => error ?? setImmediate(more));
        more();
      },
      "/announced": (_, response) => void response.writeHead(200, { "content-length": 5_000_000 }).write("x"),
      "/trickle": (_, response) => {
        const timer = setInterval(() => response.write("x"), 20);
        response.on("close", () => clearInterval(timer));
      },
      "/silent": () => {},
      "/once": (_, response) => void response.writeHead(302, { location: "/picture" }).end(),
      "/twice": (_, response) => void response.writeHead(307, { location: "once" }).end(),
      "/thrice": (_, response) => void response.writeHead(301, { location: "/twice" }).end(),
      "/four-times": (_, response) => void response.writeHead(308, { location: "/thrice" }).end(),
      "/circle": (_, response) => void response.writeHead(302, { location: "/circle" }).end(),
      "/to-loopback": (_, response) => void response.writeHead(302, { location: "https://127.0.0.1/" }).end(),
      "/to-metadata": (_, response) =>
        void response.writeHead(302, { location: "https://169.254.169.254/latest/meta-data/" }).end(),
      "/to-plain": (_, response) =>
        void response.writeHead(302, { location: `http://${plainServer.host}/picture` }).end(),
      "/to-file": (_, response) => void response.writeHead(302, { location: "file:///etc/passwd" }).end(),
      "/to-nonsense": (_, response) => void response.writeHead(302, { location: "https://[" }).end(),
      "/to-user": (_, response) => void response.writeHead(302, { location: `https://me:pw@${server.host}/` }).end(),
      "/endless-redirect": (_, response) => {
        response.writeHead(302, { location: "/picture" });
        const more = (): void => void response.write(Buffer.alloc(65_536), (error) => error ?? setImmediate(more));
        more();
      },
    });
    source = createHttpsImageSource({
      allowedPrivateHosts: [server.host],
      certificateAuthorities: certificate.cert,
    });
  });
  afterAll(async () => {
    await source.close();
    await server.stop();
    await plainServer.stop();
  });

  const fetchPath = (path: string, signal = never): Promise<Uint8Array> =>
    source.fetch(`https://${server.host}${path}`, { signal, maxImageBytes: 1_000_000 });

  test("retries after 503 and returns the third answer", async () => {
    expect(await fetchPath("/flaky")).toEqual(picture);
    expect(counts.flaky).toBe(3);
  });

  test("gives up after three attempts and reports the last status", async () => {
    await expect(fetchPath("/down")).rejects.toMatchObject({
      code: "image_unreachable",
      message: expect.stringContaining("429"),
    });
    expect(counts.down).toBe(3);
  });

  test("does not retry after 410", async () => {
    await expect(fetchPath("/gone")).rejects.toMatchObject({
      code: "image_unreachable",
      message: expect.stringContaining("410"),
    });
    expect(counts.gone).toBe(1);
  });

  test("retries a body whose connection broke", async () => {
    expect(await fetchPath("/torn")).toEqual(picture);
  });

  test.for(["/gzip", "/br", "/wrongly-gzip", "/wrongly-utf-8"])("undoes an encoding: %s", async (path) => {
    expect(Buffer.from(await fetchPath(path))).toEqual(picture);
  });

  test("limits the size of a body without its encoding", async () => {
    await expect(fetchPath("/gzip-bomb")).rejects.toMatchObject({
      code: "image_too_large",
      message: "The image has more bytes than the limit of 1000000.",
    });
  });

  test("stops a body that never ends at the size limit", async () => {
    await expect(fetchPath("/endless")).rejects.toMatchObject({
      code: "image_too_large",
      message: expect.stringContaining("1000000"),
    });
  });

  test("rejects an announced length above the limit without waiting for the body", async () => {
    await expect(fetchPath("/announced")).rejects.toMatchObject({
      code: "image_too_large",
      message: "The image has 5000000 bytes; the limit is 1000000.",
    });
  });

  test.for(["/trickle", "/silent"])("ends %s with the signal's reason at the timeout", async (path) => {
    const reason = new Error("time is up");
    const controller = new AbortController();
    const fetching = fetchPath(path, controller.signal);
    setTimeout(() => controller.abort(reason), 100);
    await expect(fetching).rejects.toBe(reason);
  });

  test.for(["/once", "/twice", "/thrice", "/endless-redirect"])("follows %s", async (path) => {
    expect(await fetchPath(path)).toEqual(picture);
  });

  test.for(["/four-times", "/circle"])("follows %s three times at most", async (path) => {
    await expect(fetchPath(path)).rejects.toMatchObject({
      code: "image_unreachable",
      message: expect.stringContaining("more than 3 times"),
    });
  });

  test.for([
    ["/to-loopback", "not public"],
    ["/to-metadata", "not public"],
    ["/to-plain", "redirects to http:"],
    ["/to-file", "redirects to file:"],
    ["/to-nonsense", "an invalid URL"],
    ["/to-user", "user name"],
  ])("rejects %s: %s", async ([path, reason]) => {
    await expect(fetchPath(path!)).rejects.toMatchObject({
      code: "invalid_image_reference",
      message: expect.stringContaining(reason!),
    });
  });

  test("still serves after all of that, over existing connections", async () => {
    expect(await fetchPath("/picture")).toEqual(picture);
  });

  test("rejects a certificate without a trusted authority", async () => {
    await withSource({ allowedPrivateHosts: [server.host] }, async (stranger) => {
      const fetching = stranger.fetch(`https://${server.host}/picture`, { signal: never, maxImageBytes: 1_000 });
      await expect(fetching).rejects.toMatchObject({
        code: "image_unreachable",
        message: expect.stringContaining("certificate"),
      });
    });
  });

  test("fetches http only where it is allowed", async () => {
    const reference = `http://${plainServer.host}/picture`;
    const options = { allowedPrivateHosts: [plainServer.host] };
    await withSource({ ...options, allowHttp: true }, async (permissive) => {
      expect(permissive.schemes).toEqual(["https", "http"]);
      expect(await permissive.fetch(reference, { signal: never, maxImageBytes: 1_000 })).toEqual(picture);
    });
    await withSource(options, async (strict) => {
      await expect(strict.fetch(reference, { signal: never, maxImageBytes: 1_000 })).rejects.toMatchObject({
        code: "invalid_image_reference",
      });
    });
  });

  test("applies allowed domains to the first address and to redirects", async () => {
    const options = {
      allowedPrivateHosts: [`images.test:${server.port}`, server.host],
      certificateAuthorities: certificate.cert,
      allowedDomains: ["images.test"],
      lookup: resolveTo("127.0.0.1"),
    };
    await withSource(options, async (limited) => {
      const get = (host: string, path: string): Promise<Uint8Array> =>
        limited.fetch(`https://${host}:${server.port}${path}`, { signal: never, maxImageBytes: 1_000 });
      expect(await get("IMAGES.test", "/once")).toEqual(picture);
      const refusal = { code: "invalid_image_reference", message: expect.stringContaining("allowed domains") };
      await expect(get("127.0.0.1", "/picture")).rejects.toMatchObject(refusal);
      await expect(get("images.test", "/to-metadata")).rejects.toMatchObject(refusal);
      await expect(get("images.test.evil.test", "/picture")).rejects.toMatchObject(refusal);
    });
  });
});

describe("addresses that are not public", () => {
  let server: WebServer;

  beforeAll(async () => {
    server = await startTlsServer({ "/": (_, response) => void response.end(picture) });
  });
  afterAll(async () => {
    await server.stop();
  });

  const refused = {
    code: "invalid_image_reference",
    message: "The image's host has an address that is not public.",
    // No socket was opened to determine this.
    numConnections: 0,
  };

  async function tryHost(host: string, options: HttpsImageSourceOptions): Promise<Partial<typeof refused>> {
    const source = createHttpsImageSource({ certificateAuthorities: certificate.cert, ...options });
    try {
      await source.fetch(`https://${host}:${server.port}/`, { signal: never, maxImageBytes: 1_000 });
      return {};
    } catch (error) {
      const { code, message } = error as EngineError;
      return { code, message, numConnections: server.numConnections() };
    } finally {
      await source.close();
    }
  }

  test.for([
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "0",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:0:0:1]",
    "169.254.169.254",
    "[64:ff9b::7f00:1]",
    "１２７.0.0.1",
    "127。0。0。1",
  ])("https://%s is rejected", async (host) => {
    expect(await tryHost(host, {})).toEqual(refused);
  });

  test.for([
    ["loopback", resolveTo("127.0.0.1")],
    ["IPv6 loopback", resolveTo("::1")],
    ["a public and a private address", resolveTo("93.184.216.34", "127.0.0.1")],
    ["nothing", resolveTo()],
    ["the system's localhost", systemLookup as LookupFunction],
  ] as const)("a name that resolves to %s is rejected", async ([, lookup]) => {
    expect(await tryHost("localhost", { lookup })).toEqual(refused);
  });

  test("localhost is rejected whatever name servers say", async () => {
    expect(await tryHost("localhost", {})).toEqual(refused);
    expect(await tryHost("a.localhost", {})).toEqual(refused);
  });

  test("a name that becomes private between two attempts is rejected at the second", async () => {
    let numLookups = 0;
    // The first address is public and unused: its network was returned.
    const rebinding: LookupFunction = (hostname, options, callback) =>
      resolveTo(++numLookups === 1 ? "3ffe:ffff::1" : "127.0.0.1")(hostname, options, callback);
    expect(await tryHost("images.test", { lookup: rebinding })).toEqual(refused);
    expect(numLookups).toBe(2);
  });

  test("an allowed host is allowed only on its port", async () => {
    expect(
      await tryHost("127.0.0.1", { allowedPrivateHosts: ["127.0.0.1:1", "127.0.0.1", `localhost:${server.port}`] }),
    ).toEqual(refused);
  });
});

test("an error shows neither the query nor the password of an address", async () => {
  await withSource({}, async (source) => {
    for (const reference of [
      "https://no-such-host.invalid/a.png?X-Amz-Signature=hush",
      "https://me:hush@no-such-host.invalid/a.png",
      "https://me:hush@no such host/",
      "http://me:hush@no-such-host.invalid/",
    ]) {
      const error = await source.fetch(reference, { signal: never, maxImageBytes: 1 }).catch((e: unknown) => e);
      expect((error as Error).message).not.toContain("hush");
    }
  });
});

test("a fetch ends as soon as it is aborted, also while the name of its host is being resolved", async () => {
  const looking = Promise.withResolvers<void>();
  const lookup: LookupFunction = () => looking.resolve();
  await withSource({ lookup }, async (source) => {
    const controller = new AbortController();
    let isLate = false;
    const fetching = source
      .fetch("https://images.example/a.png", { signal: controller.signal, maxImageBytes: 1000 })
      .catch((error: unknown) => ({ error, isLate }));
    await looking.promise;
    // Before undici gives up the connection by itself.
    const timer = setTimeout(() => (isLate = true), 3_000);
    const reason = new Error("The client has gone.");
    controller.abort(reason);
    expect(await fetching).toEqual({ error: reason, isLate: false });
    clearTimeout(timer);
  });
});

async function withSource(
  options: HttpsImageSourceOptions,
  use: (source: ConnectedImageSource) => Promise<void>,
): Promise<void> {
  const source = createHttpsImageSource(options);
  try {
    await use(source);
  } finally {
    await source.close();
  }
}

function resolveTo(...addresses: readonly string[]): LookupFunction {
  const found = addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
  return (_hostname, options, callback) => {
    if (options.all === true) callback(null, found);
    else callback(null, found[0]!.address, found[0]!.family);
  };
}
