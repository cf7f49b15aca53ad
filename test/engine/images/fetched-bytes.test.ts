import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { GenerationRequest } from "../../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import { FetchedBytes } from "../../../engine/images/fetched-bytes.ts";
import { createHttpsImageSource } from "../../../engine/images/https-image-source.ts";
import type { ConnectedImageSource } from "../../../engine/images/image-source.ts";
import { createGoldenInputs, imageLimits } from "../input/golden-inputs.ts";
import { blankPng } from "./computed-picture.ts";
import { startWebServer, type WebServer } from "./web-server.ts";

const MEBIBYTE = 1024 ** 2;

describe("the bytes that requests hold", () => {
  test("beyond the limit, the request with most of them is refused, and the others keep theirs", () => {
    const bytes = new FetchedBytes(10 * MEBIBYTE);
    using large = bytes.open("tenant");
    using small = bytes.open("tenant");
    large.add(7 * MEBIBYTE);
    small.add(3 * MEBIBYTE);
    expect(large.refused.aborted).toBe(false);
    small.add(1);
    expect(large.refused.reason).toMatchObject({ code: "queue_full", message: expect.stringContaining("10485760") });
    small.add(5 * MEBIBYTE);
    expect(small.refused.aborted).toBe(false);
  });

  test("many requests of one tenant do not refuse those of another", () => {
    const bytes = new FetchedBytes(10 * MEBIBYTE);
    using other = bytes.open("other");
    other.add(4 * MEBIBYTE);
    const many = Array.from({ length: 20 }, () => bytes.open("many"));
    for (const held of many) held.add(MEBIBYTE);
    expect(other.refused.aborted).toBe(false);
    expect(many.filter(({ refused }) => refused.aborted)).toHaveLength(14);
  });

  test("a request that is alone keeps all, and leaves its room when it ends", () => {
    const bytes = new FetchedBytes(2 * MEBIBYTE);
    const alone = bytes.open("");
    alone.add(9 * MEBIBYTE);
    expect(alone.refused.aborted).toBe(false);
    alone[Symbol.dispose]();
    using next = bytes.open("");
    using last = bytes.open("");
    next.add(MEBIBYTE);
    last.add(MEBIBYTE);
    expect([next, last].map(({ refused }) => refused.aborted)).toEqual([false, false]);
  });
});

describe("a request whose pictures arrive slowly", () => {
  const picture = blankPng({ width: 40, height: 40, bitDepth: 8, colourType: "rgb" });
  const first = Promise.withResolvers<void>();
  let server: WebServer;
  let source: ConnectedImageSource;

  beforeAll(async () => {
    server = await startWebServer(({ url }, response) => {
      if (url === "/picture") return response.end(picture);
      response.write(new Uint8Array(5 * MEBIBYTE), () => first.resolve());
    }, null);
    source = createHttpsImageSource({ allowHttp: true, allowedPrivateHosts: [server.host] });
  });
  afterAll(async () => {
    await source.close();
    await server.stop();
  });

  test("ends with queue_full when others need the room, and they are processed", async () => {
    const limits = { ...imageLimits, maxImageBytes: 20 * MEBIBYTE, fetchTimeoutMs: 60_000 };
    await using inputs = await createGoldenInputs("llava-default", {
      sources: [source],
      settings: { imageLimits: { ...limits, maxFetchedBytes: 5 * MEBIBYTE } },
    });
    const process = (path: string) => {
      const images = [{ type: "image", reference: `http://${server.host}${path}` }] as const;
      const request: GenerationRequest = {
        requestId: path,
        prompt: { kind: "text", text: "<image> a", addSpecialTokens: false, images },
        samplingParams: createSamplingParams(),
      };
      return inputs.inputProcessor.process(request, new AbortController().signal);
    };
    const slow = process("/slow").catch((error: unknown) => error);
    await first.promise;
    // Until all of it has been read.
    for (;;) {
      expect((await process("/picture")).images).toHaveLength(1);
      const ended = await Promise.race([slow, new Promise((resolve) => setImmediate(resolve, null))]);
      if (ended === null) continue;
      expect(ended).toMatchObject({ code: "queue_full" });
      break;
    }
  });
});
