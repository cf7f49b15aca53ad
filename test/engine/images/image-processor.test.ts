import { lookup } from "node:dns/promises";
import { readFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import sharp from "sharp";
import { afterAll, describe, expect, test } from "vitest";

import { createImageProcessor } from "../../../engine/images/image-processor.ts";
import type { ImageProcessor } from "../../../engine/images/image-processor.ts";
import { toPixelValues } from "../../../engine/images/pixel-values.ts";
import { parsePreprocessorConfig } from "../../../engine/images/preprocessor-config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { computePicture, encodePng } from "./computed-picture.ts";
import { manyScansJpeg } from "./hostile-pictures.ts";

const plan = parsePreprocessorConfig({ size: { shortest_edge: 64 }, crop_size: { height: 64, width: 64 } });
const never = new AbortController().signal;
const readPicture = (name: string): Buffer =>
  readFileSync(new URL(`../../fixtures/pixels/pictures/${name}`, import.meta.url));

describe("one processor", () => {
  const processor = createImageProcessor({ maxImagePixels: 1_000_000 });
  afterAll(() => processor.close());

  test("returns the pixel values of a picture and leaves its bytes to the caller", async () => {
    const picture = computePicture("photo", 120, 90);
    const png = encodePng(picture);
    const before = Buffer.from(png);
    expect(await processor.process({ bytes: png }, plan, never)).toEqual(toPixelValues(picture, plan));
    expect(png.equals(before)).toBe(true);
  });

  test("accepts bytes that are a view of a larger array", async () => {
    const picture = computePicture("drawing", 30, 70);
    const png = encodePng(picture);
    const around = Buffer.concat([Buffer.alloc(11, 1), png, Buffer.alloc(13, 2)]);
    const view = around.subarray(11, 11 + png.byteLength);
    expect(await processor.process({ bytes: view }, plan, never)).toEqual(toPixelValues(picture, plan));
  });

  test("processes many pictures at once without mixing them up", async () => {
    const pictures = Array.from({ length: 24 }, (_, index) => computePicture("photo", 20 + index, 50 - index));
    const results = await Promise.all(
      pictures.map((picture) => processor.process({ bytes: encodePng(picture) }, plan, never)),
    );
    expect(results).toEqual(pictures.map((picture) => toPixelValues(picture, plan)));
  });

  test.for(["gif-called.png", "animated.webp", "cmyk.jpg", "still.avif"])("serves %s", async (name) => {
    const { pixelValues, shape } = await processor.process({ bytes: readPicture(name) }, plan, never);
    expect(shape).toEqual([3, 64, 64]);
    expect(pixelValues.every(Number.isFinite)).toBe(true);
  });

  test("keeps an error's code and message between threads, and the next picture is correct", async () => {
    await expect(processor.process({ bytes: Buffer.from("<svg/>") }, plan, never)).rejects.toMatchObject({
      name: "EngineError",
      code: "invalid_image",
      message: "The image is an SVG or another XML file. The supported formats are png, jpeg, webp, gif, avif, tiff.",
    });
    await expect(
      processor.process({ bytes: encodePng(computePicture("photo", 1_001, 1_000)) }, plan, never),
    ).rejects.toMatchObject({
      code: "image_too_large",
      message: "The image has 1001x1000 = 1001000 pixels; the limit is 1000000.",
    });
    await expect(
      processor.process({ bytes: readPicture("rgb.png").subarray(0, 100) }, plan, never),
    ).rejects.toMatchObject({
      code: "invalid_image",
      message: "The png picture is broken or incomplete.",
      cause: expect.stringContaining("png"),
    });
    expect((await processor.process({ bytes: readPicture("rgb.png") }, plan, never)).shape).toEqual([3, 64, 64]);
  });

  test("abandons aborted pictures at once, and the next picture is correct", async () => {
    const png = encodePng(computePicture("photo", 900, 900));
    await expect(processor.process({ bytes: png }, plan, AbortSignal.abort())).rejects.toMatchObject({
      code: "aborted",
    });
    const controller = new AbortController();
    const processing = Array.from({ length: 50 }, () => processor.process({ bytes: png }, plan, controller.signal));
    controller.abort();
    for (const outcome of await Promise.allSettled(processing)) {
      expect(outcome).toMatchObject({ status: "rejected", reason: { code: "aborted" } });
    }
    expect((await processor.process({ bytes: png }, plan, never)).shape).toEqual([3, 64, 64]);
  });
});

test("no more pictures wait than allowed, and finished ones make room", async () => {
  const processor = createImageProcessor({ maxImagePixels: 1_000_000, numThreads: 1, maxNumWaiting: 2 });
  const png = encodePng(computePicture("photo", 300, 300));
  const outcomes = await Promise.allSettled(
    Array.from({ length: 5 }, () => processor.process({ bytes: png }, plan, never)),
  );
  expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "fulfilled", "rejected", "rejected"]);
  expect(outcomes[4]).toMatchObject({
    reason: {
      code: "queue_full",
      message: `2 images with ${2 * png.byteLength} bytes are waiting to be processed; the limits are 2 images and 536870912 bytes.`,
    },
  });
  expect((await processor.process({ bytes: png }, plan, never)).shape).toEqual([3, 64, 64]);
  await processor.close();
});

describe("on one thread", () => {
  const limits = { maxImagePixels: 10_000_000, numThreads: 1 };
  const heavy = encodePng(computePicture("photo", 900, 700));
  const light = encodePng(computePicture("photo", 16, 16));
  const ownedBy = (tenant = "") => ({ tenant, request: {} });

  test("a small picture is finished before the rest of sixteen large ones of another request", async () => {
    await using processor = disposable(createImageProcessor(limits));
    const owner = ownedBy();
    let numHeavyDone = 0;
    const heavies = Array.from({ length: 16 }, async () => {
      await processor.process({ bytes: heavy, owner }, plan, never);
      numHeavyDone++;
    });
    await heavies[0];
    await processor.process({ bytes: light, owner: ownedBy() }, plan, never);
    expect(numHeavyDone).toBeLessThanOrEqual(4);
    await Promise.all(heavies);
    expect(numHeavyDone).toBe(16);
  });

  test("a tenant's picture is finished before most pictures of another tenant, however many requests it has", async () => {
    await using processor = disposable(createImageProcessor(limits));
    let numHeavyDone = 0;
    const heavies = Array.from({ length: 16 }, async () => {
      await processor.process({ bytes: heavy, owner: ownedBy("many") }, plan, never);
      numHeavyDone++;
    });
    await heavies[0];
    await processor.process({ bytes: heavy, owner: ownedBy("one") }, plan, never);
    expect(numHeavyDone).toBeLessThanOrEqual(5);
    await Promise.all(heavies);
  });

  test("an aborted request costs no more than the picture in progress", async () => {
    await using folder = await createTemporaryFolder();
    await using processor = disposable(createImageProcessor(limits));
    const module = new URL("./counted.ts", import.meta.url).href;
    const [file, otherFile] = [join(folder.path, "aborted"), join(folder.path, "other")];
    const controller = new AbortController();
    const owner = ownedBy();
    const heavies = Array.from({ length: 16 }, () =>
      processor.runProgram({ bytes: heavy, owner }, { module, options: { file } }, controller.signal),
    );
    const settled = Promise.allSettled(heavies);
    await heavies[0];
    controller.abort();
    // A thread processes pictures one after the other, so everything that will ever be done is done by now.
    await processor.runProgram({ bytes: light }, { module, options: { file: otherFile } }, never);
    expect((await stat(file)).size).toBeLessThanOrEqual(2);
    expect((await settled).filter(({ status }) => status === "rejected").length).toBeGreaterThanOrEqual(14);
  });

  test("the header of a picture is read and checked against limits without decoding", async () => {
    await using processor = disposable(createImageProcessor({ ...limits, maxDecodeCost: 100_000 }));
    expect(await processor.readHeader({ bytes: light }, never)).toMatchObject({ format: "png", width: 16, height: 16 });
    const refusal = {
      code: "image_too_large",
      setting: "maxDecodeCost",
      message: expect.stringMatching(/costs as much to decode as 652400 pixels of plain RGB; the limit is 100000/),
    };
    await expect(processor.readHeader({ bytes: heavy }, never)).rejects.toMatchObject(refusal);
    await expect(processor.process({ bytes: heavy }, plan, never)).rejects.toMatchObject(refusal);
  });
});

test("one of libuv's four threads stays free for files and names, however many threads are requested", async () => {
  const limits = { maxImagePixels: 100_000_000, maxDecodeCost: Number.POSITIVE_INFINITY, decodeTimeoutMs: 600_000 };
  await using processor = disposable(createImageProcessor({ ...limits, numThreads: 8 }));
  // Each takes one decoder call of nearly a second.
  const slow = manyScansJpeg(4_000, 300);
  let numDone = 0;
  const decoding = Array.from({ length: 5 }, () =>
    processor.process({ bytes: slow }, plan, never).finally(() => numDone++),
  );
  const numDecodedAtOnce = () => sharp.counters().process;
  await expect.poll(numDecodedAtOnce, { interval: 1, timeout: 60_000 }).toBe(3);
  await Promise.all([stat(import.meta.filename), lookup("localhost")]);
  expect(numDone).toBe(0);
  while (numDone < decoding.length) {
    expect(numDecodedAtOnce()).toBeLessThanOrEqual(3);
    await setTimeout(1);
  }
  await Promise.all(decoding);
});

function disposable(processor: ImageProcessor): ImageProcessor & AsyncDisposable {
  return { ...processor, [Symbol.asyncDispose]: () => processor.close() };
}

test("closing rejects current and later work, and can be repeated", async () => {
  const processor = createImageProcessor({ maxImagePixels: 1_000_000, numThreads: 1 });
  const png = encodePng(computePicture("photo", 300, 300));
  await processor.process({ bytes: png }, plan, never);
  const processing = Promise.allSettled(
    Array.from({ length: 4 }, () => processor.process({ bytes: png }, plan, never)),
  );
  await processor.close();
  for (const outcome of await processing) {
    expect(outcome).toMatchObject({ status: "rejected", reason: { code: "closed" } });
  }
  await expect(processor.process({ bytes: png }, plan, never)).rejects.toMatchObject({ code: "closed" });
  await processor.close();
});

test("an unused processor closes without having started a thread", async () => {
  const processor = createImageProcessor({ maxImagePixels: 1 });
  await processor.close();
  await expect(processor.process({ bytes: new Uint8Array(1) }, plan, never)).rejects.toMatchObject({ code: "closed" });
});
