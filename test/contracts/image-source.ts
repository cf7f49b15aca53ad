/**
 * The contract of every image source. A new source is one file, one line of registration and one call of this suite.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { ImageSource } from "../../engine/images/image-source.ts";

export interface ImageSourceFixture {
  readonly source: ImageSource;
  /** Stores bytes where the source finds them and returns their reference. */
  store(bytes: Uint8Array): Promise<string>;
  /** Well-formed references without an image; empty if there are none. */
  readonly missing: readonly string[];
  /** References that the source rejects without a request. */
  readonly malformed: readonly string[];
  close(): Promise<void>;
}

const never = new AbortController().signal;
const MAX_IMAGE_BYTES = 1 << 20;

export function testImageSource(name: string, createFixture: () => Promise<ImageSourceFixture>): void {
  describe(`the image source contract: ${name}`, () => {
    let fixture: ImageSourceFixture;

    beforeAll(async () => {
      fixture = await createFixture();
    });
    afterAll(async () => {
      await fixture.close();
    });

    const fetchStored = async (bytes: Uint8Array, limit = MAX_IMAGE_BYTES): Promise<Uint8Array> =>
      fixture.source.fetch(await fixture.store(bytes), { signal: never, maxImageBytes: limit });

    test("names its schemes in lower case without a colon", () => {
      expect(fixture.source.schemes.length).toBeGreaterThan(0);
      for (const scheme of fixture.source.schemes) expect(scheme).toMatch(/^[a-z][a-z0-9+.-]*$/);
    });

    test.for([1, 2, 3, 4, 255, 65_536, 300_001])("returns exactly the %i bytes that were stored", async (length) => {
      const bytes = Uint8Array.from({ length }, (_, index) => (index * 31 + (index >> 8)) & 255);
      expect(Buffer.compare(await fetchStored(bytes), bytes)).toBe(0);
    });

    test("reports the bytes that arrive, unless the reference contains them", async () => {
      const reference = await fixture.store(new Uint8Array(100_000));
      let numBytes = 0;
      const onBytes = (length: number): void => void (numBytes += length);
      await fixture.source.fetch(reference, { signal: never, maxImageBytes: MAX_IMAGE_BYTES, onBytes });
      expect(numBytes).toBe(reference.startsWith("data:") ? 0 : 100_000);
    });

    test("serves an image at the size limit and rejects one byte more, with the limit", async () => {
      const bytes = new Uint8Array(10_000).fill(7);
      expect((await fetchStored(bytes, 10_000)).byteLength).toBe(10_000);
      await expect(fetchStored(bytes, 9_999)).rejects.toMatchObject({
        name: "EngineError",
        code: "image_too_large",
        message: expect.stringContaining("9999"),
      });
    });

    test("throws the signal's reason when it is aborted before the start", async () => {
      const reference = await fixture.store(new Uint8Array(8));
      const reason = new Error("nobody waits");
      const signal = AbortSignal.abort(reason);
      await expect(fixture.source.fetch(reference, { signal, maxImageBytes: MAX_IMAGE_BYTES })).rejects.toBe(reason);
    });

    test("throws the signal's reason when it is aborted during the fetch", async () => {
      const reference = await fixture.store(new Uint8Array(8));
      const controller = new AbortController();
      const reason = new Error("nobody waits any more");
      const fetching = fixture.source.fetch(reference, { signal: controller.signal, maxImageBytes: MAX_IMAGE_BYTES });
      controller.abort(reason);
      // A source that already holds the bytes may be done by then.
      const thrown: unknown = await fetching.then(
        () => reason,
        (error: unknown) => error,
      );
      expect(thrown).toBe(reason);
    });

    test("serves many images concurrently without mixing them up", async () => {
      const references = await Promise.all(
        Array.from({ length: 24 }, (_, index) => fixture.store(new Uint8Array(1_000 + index).fill(index))),
      );
      const images = await Promise.all(
        references.map((reference) =>
          fixture.source.fetch(reference, { signal: never, maxImageBytes: MAX_IMAGE_BYTES }),
        ),
      );
      expect(images.map((bytes) => [bytes.byteLength, bytes[0]])).toEqual(
        images.map((_, index) => [1_000 + index, index]),
      );
    });

    test("reports a missing image as unreachable and serves the next one", async () => {
      for (const reference of fixture.missing) {
        const fetching = fixture.source.fetch(reference, { signal: never, maxImageBytes: MAX_IMAGE_BYTES });
        await expect(fetching).rejects.toMatchObject({ name: "EngineError", code: "image_unreachable" });
      }
      expect((await fetchStored(new Uint8Array(5))).byteLength).toBe(5);
    });

    test("rejects malformed references and quotes little of them", async () => {
      for (const reference of fixture.malformed) {
        const long = `${reference}${"\u0007x".repeat(4_000)}`;
        for (const candidate of [reference, long]) {
          const error = await fixture.source
            .fetch(candidate, { signal: never, maxImageBytes: MAX_IMAGE_BYTES })
            .catch((e: unknown) => e);
          expect(error).toMatchObject({ name: "EngineError", code: "invalid_image_reference" });
          const { message } = error as Error;
          expect(message.length).toBeLessThan(250);
          expect(message).toMatch(/^[\x20-\x7e…]*$/);
        }
      }
    });
  });
}
