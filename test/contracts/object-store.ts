/** The contract of every object store; call it with a factory of empty stores. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { readText, writeText } from "../../functions/storage/object-store.ts";
import type { ObjectStore } from "../../functions/storage/object-store.ts";

export interface ObjectStoreContract {
  /** Opens another store of the same objects. */
  readonly open: () => Promise<ObjectStore>;
}

const MEBIBYTE = 1024 ** 2;

async function* chunksOf(numChunks: number, numBytes: number): AsyncGenerator<Uint8Array> {
  for (let chunk = 0; chunk < numChunks; chunk++) yield Buffer.alloc(numBytes, chunk);
}

async function* brokenAfter(numChunks: number, numBytes: number): AsyncGenerator<Uint8Array> {
  yield* chunksOf(numChunks, numBytes);
  throw new Error("the upload was cut off");
}

export function testObjectStore(name: string, { open }: ObjectStoreContract): void {
  describe(`object store: ${name}`, () => {
    let store: ObjectStore;
    beforeAll(async () => {
      store = await open();
    });
    afterAll(() => store.close());

    test("is empty at first, and deleting a missing object is no error", async () => {
      expect(await store.read("files/absent")).toBeNull();
      expect(await store.list("files/")).toEqual([]);
      await store.delete("files/absent");
    });

    test("returns what was written last, through other instances too", async () => {
      await writeText(store, "records/a.json", "first");
      await writeText(store, "records/a.json", "second, longer");
      const other = await open();
      expect(await readText(other, "records/a.json")).toBe("second, longer");
      await other.close();
      await store.delete("records/a.json");
      expect(await store.read("records/a.json")).toBeNull();
    });

    test("stores empty objects", async () => {
      expect(await store.write("records/empty", [])).toBe(0);
      expect(await readText(store, "records/empty")).toBe("");
      await store.delete("records/empty");
    });

    test("stores objects of many chunks and reports their length", async () => {
      expect(await store.write("large/object", chunksOf(38, MEBIBYTE / 2))).toBe(19 * MEBIBYTE);
      const object = await store.read("large/object");
      expect(object?.numBytes).toBe(19 * MEBIBYTE);
      let numBytes = 0;
      for await (const chunk of object?.chunks ?? []) {
        for (const offset of [0, chunk.byteLength - 1]) {
          expect(chunk[offset]).toBe(Math.floor((numBytes + offset) / (MEBIBYTE / 2)));
        }
        numBytes += chunk.byteLength;
      }
      expect(numBytes).toBe(19 * MEBIBYTE);
    });

    test.for([1, 40])(
      "a write that breaks off after %i chunks leaves nothing, or the previous object",
      async (numChunks) => {
        await expect(store.write("broken/new", brokenAfter(numChunks, MEBIBYTE / 2))).rejects.toThrow("cut off");
        await writeText(store, "broken/old", "as it was");
        await expect(store.write("broken/old", brokenAfter(numChunks, MEBIBYTE / 2))).rejects.toThrow("cut off");
        expect(await store.list("broken/")).toEqual(["broken/old"]);
        expect(await readText(store, "broken/old")).toBe("as it was");
      },
    );

    test("shows an object only when it is complete", async () => {
      const { promise: held, resolve } = Promise.withResolvers<void>();
      const begun = Promise.withResolvers<void>();
      async function* slowly(): AsyncGenerator<Uint8Array> {
        yield Buffer.from("half");
        begun.resolve();
        await held;
        yield Buffer.from(" and half");
      }
      const writing = store.write("slow/object", slowly());
      await begun.promise;
      expect(await store.list("slow/")).toEqual([]);
      expect(await store.read("slow/object")).toBeNull();
      resolve();
      await writing;
      expect(await readText(store, "slow/object")).toBe("half and half");
    });

    test("lists the keys with a prefix in order", async () => {
      for (const key of ["b-2", "a-2", "b-1", "a-1"]) await writeText(store, `listed/${key}`, key);
      expect(await store.list("listed/")).toEqual(["listed/a-1", "listed/a-2", "listed/b-1", "listed/b-2"]);
      expect(await store.list("listed/b-")).toEqual(["listed/b-1", "listed/b-2"]);
    });

    test("reports the number and the total size of objects below a prefix", async () => {
      expect(await store.measure("measured/")).toEqual({ numObjects: 0, numBytes: 0 });
      await store.write("measured/a-1", [Buffer.alloc(1000)]);
      await store.write("measured/a-2", [Buffer.alloc(20), Buffer.alloc(3)]);
      await store.write("measured/b", [Buffer.alloc(100_000)]);
      expect(await store.measure("measured/a-")).toEqual({ numObjects: 2, numBytes: 1023 });
      expect(await store.measure("measured/")).toEqual({ numObjects: 3, numBytes: 101_023 });
      await store.write("measured/b", [Buffer.alloc(7)]);
      await store.delete("measured/a-1");
      expect(await store.measure("measured/")).toEqual({ numObjects: 2, numBytes: 30 });
    });

    test.for(["../outside", "files/../../outside", "files/.hidden", "/etc/passwd", "files/", "files", "a/b/c", "f/\0"])(
      "%j is not a valid key",
      async (key) => {
        await expect(store.read(key)).rejects.toThrow("is not a valid key");
        await expect(writeText(store, key, "x")).rejects.toThrow("is not a valid key");
        await expect(store.delete(key)).rejects.toThrow("is not a valid key");
      },
    );
  });
}
