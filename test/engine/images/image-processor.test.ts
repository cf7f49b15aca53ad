import { readFileSync } from "node:fs";
import { afterAll, describe, expect, test } from "vitest";
import { createImageProcessor } from "../../../engine/images/image-processor.ts";
import { toPixelValues } from "../../../engine/images/pixel-values.ts";
import { parsePreprocessorConfig } from "../../../engine/images/preprocessor-config.ts";
import { computePicture, encodePng } from "./computed-picture.ts";

const config = { size: { shortest_edge: 64 }, crop_size: { height: 64, width: 64 } };
const plan = parsePreprocessorConfig(config);
const never = new AbortController().signal;
const readPicture = (name: string): Buffer =>
  readFileSync(new URL(`../../fixtures/pixels/pictures/${name}`, import.meta.url));

describe("one processor", () => {
  const processor = createImageProcessor(config, { maxImagePixels: 1_000_000 });
  afterAll(() => processor.close());

  test("gives the pixel values of a picture and leaves its bytes to the caller", async () => {
    const picture = computePicture("photo", 120, 90);
    const png = encodePng(picture);
    const before = Buffer.from(png);
    expect(await processor.process(png, never)).toEqual(toPixelValues(picture, plan));
    expect(png.equals(before)).toBe(true);
  });

  test("takes bytes that are a view of something larger", async () => {
    const picture = computePicture("drawing", 30, 70);
    const png = encodePng(picture);
    const around = Buffer.concat([Buffer.alloc(11, 1), png, Buffer.alloc(13, 2)]);
    const view = around.subarray(11, 11 + png.byteLength);
    expect(await processor.process(view, never)).toEqual(toPixelValues(picture, plan));
  });

  test("keeps apart many pictures at once", async () => {
    const pictures = Array.from({ length: 24 }, (_, index) => computePicture("photo", 20 + index, 50 - index));
    const results = await Promise.all(pictures.map((picture) => processor.process(encodePng(picture), never)));
    expect(results).toEqual(pictures.map((picture) => toPixelValues(picture, plan)));
  });

  test.for(["gif-called.png", "animated.webp", "cmyk.jpg", "still.avif"])("serves %s", async (name) => {
    const { pixelValues, shape } = await processor.process(readPicture(name), never);
    expect(shape).toEqual([3, 64, 64]);
    expect(pixelValues.every(Number.isFinite)).toBe(true);
  });

  test("an error keeps its code and words on its way between threads, and the next picture is right", async () => {
    await expect(processor.process(Buffer.from("<svg/>"), never)).rejects.toMatchObject({
      name: "EngineError",
      code: "invalid_image",
      message: "The 6 bytes are no picture of a served format: png, jpeg, webp, gif, avif, tiff.",
    });
    await expect(processor.process(encodePng(computePicture("photo", 1_001, 1_000)), never)).rejects.toMatchObject({
      code: "image_too_large",
      message: "The image has 1001x1000 = 1001000 pixels; the limit is 1000000.",
    });
    await expect(processor.process(readPicture("rgb.png").subarray(0, 100), never)).rejects.toMatchObject({
      code: "invalid_image",
      message: "The png picture is broken or incomplete.",
      cause: expect.stringContaining("png"),
    });
    expect((await processor.process(readPicture("rgb.png"), never)).shape).toEqual([3, 64, 64]);
  });

  test("aborted pictures are given up at once, and the next picture is right", async () => {
    const png = encodePng(computePicture("photo", 900, 900));
    await expect(processor.process(png, AbortSignal.abort())).rejects.toMatchObject({ code: "aborted" });
    const controller = new AbortController();
    const processing = Array.from({ length: 50 }, () => processor.process(png, controller.signal));
    controller.abort();
    for (const outcome of await Promise.allSettled(processing)) {
      expect(outcome).toMatchObject({ status: "rejected", reason: { code: "aborted" } });
    }
    expect((await processor.process(png, never)).shape).toEqual([3, 64, 64]);
  });
});

test("no more pictures wait than are allowed, and room is made by finished ones", async () => {
  const processor = createImageProcessor(config, { maxImagePixels: 1_000_000, numThreads: 1, maxNumWaiting: 2 });
  const png = encodePng(computePicture("photo", 300, 300));
  const outcomes = await Promise.allSettled(Array.from({ length: 5 }, () => processor.process(png, never)));
  expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "fulfilled", "rejected", "rejected"]);
  expect(outcomes[4]).toMatchObject({
    reason: { code: "queue_full", message: "3 images are in work; the limit is 3." },
  });
  expect((await processor.process(png, never)).shape).toEqual([3, 64, 64]);
  await processor.close();
});

test("closing refuses what is in work and what comes later, and can be repeated", async () => {
  const processor = createImageProcessor(config, { maxImagePixels: 1_000_000, numThreads: 1 });
  const png = encodePng(computePicture("photo", 300, 300));
  await processor.process(png, never);
  const processing = Promise.allSettled(Array.from({ length: 4 }, () => processor.process(png, never)));
  await processor.close();
  for (const outcome of await processing) {
    expect(outcome).toMatchObject({ status: "rejected", reason: { code: "closed" } });
  }
  await expect(processor.process(png, never)).rejects.toMatchObject({ code: "closed" });
  await processor.close();
});

test("a processor that never saw a picture closes without having started a thread", async () => {
  const processor = createImageProcessor(config, { maxImagePixels: 1 });
  await processor.close();
  await expect(processor.process(new Uint8Array(1), never)).rejects.toMatchObject({ code: "closed" });
});
