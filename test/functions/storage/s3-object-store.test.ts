import { CreateBucketCommand, ListMultipartUploadsCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, expect, test } from "vitest";

import { StorageError, writeText } from "../../../functions/storage/object-store.ts";
import { createS3ObjectStore } from "../../../functions/storage/s3-object-store.ts";
import type { S3ObjectStoreOptions } from "../../../functions/storage/s3-object-store.ts";
import { testObjectStore } from "../../contracts/object-store.ts";
import { startS3Server } from "../../support/s3-server.ts";
import type { S3Server } from "../../support/s3-server.ts";

let server: S3Server;

beforeAll(async () => {
  server = await startS3Server();
  await server.client.send(new CreateBucketCommand({ Bucket: "batches" }));
});

afterAll(() => server.stop());

const patient = { callMs: 60_000, bodyMs: 60_000 };

function open(options: Partial<S3ObjectStoreOptions> = {}) {
  return createS3ObjectStore({
    client: server.createClient(),
    bucket: "batches",
    prefix: "team/fovea",
    timeouts: patient,
    ...options,
  });
}

testObjectStore("S3", { open: async () => open() });

test("prefixes are apart, and none is the whole bucket", async () => {
  const [first, second, whole] = [open({ prefix: "first" }), open({ prefix: "second" }), open({ prefix: "" })];
  await writeText(first, "files/a", "x");
  await writeText(whole, "top/a", "x");
  expect(await first.list("files/")).toEqual(["files/a"]);
  expect(await second.list("files/")).toEqual([]);
  expect(await whole.list("top/")).toEqual(["top/a"]);
  await Promise.all([first.close(), second.close(), whole.close()]);
});

test("an upload that breaks off leaves no parts behind that would be paid for", async () => {
  const store = open();
  async function* broken(): AsyncGenerator<Uint8Array> {
    for (let part = 0; part < 3; part++) yield Buffer.alloc(8 * 1024 ** 2);
    throw new Error("cut off");
  }
  await expect(store.write("files/broken", broken())).rejects.toThrow("cut off");
  const { Uploads } = await server.client.send(new ListMultipartUploadsCommand({ Bucket: "batches" }));
  expect(Uploads ?? []).toEqual([]);
  await store.close();
});

test("a bucket that is not there is the store's fault, in words", async () => {
  const store = open({ bucket: "absent" });
  await expect(writeText(store, "files/a", "x")).rejects.toThrow(StorageError);
  await expect(store.read("files/a")).rejects.toThrow(/^Reading on S3 failed: The specified bucket/);
  await store.close();
});
