import { setTimeout as sleep } from "node:timers/promises";
import { CreateBucketCommand, ListMultipartUploadsCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";

import { loadS3ClientFactory } from "../../../functions/compose.ts";
import { loadConfig } from "../../../functions/settings/config.ts";
import { StorageError, writeText } from "../../../functions/storage/object-store.ts";
import type { ObjectStore } from "../../../functions/storage/object-store.ts";
import { createS3ObjectStore } from "../../../functions/storage/s3-object-store.ts";
import type { S3ObjectStoreOptions } from "../../../functions/storage/s3-object-store.ts";
import { testObjectStore } from "../../contracts/object-store.ts";
import { startFaultProxy } from "../../support/servers/fault-proxy.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";

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

test("a store without a region names the setting", async () => {
  vi.stubEnv("AWS_REGION", undefined);
  vi.stubEnv("AWS_CONFIG_FILE", "/dev/null");
  onTestFinished(() => void vi.unstubAllEnvs());
  const createClient = await loadS3ClientFactory(loadConfig({}));
  const store = open({ client: createClient() });
  await expect(store.list("files/")).rejects.toThrow("Listing on S3 failed: Region is missing: AWS_REGION is not set");
});

test("prefixes are separate, and no prefix is the whole bucket", async () => {
  const [first, second, whole] = [open({ prefix: "first" }), open({ prefix: "second" }), open({ prefix: "" })];
  await writeText(first, "files/a", "x");
  await writeText(whole, "top/a", "x");
  expect(await first.list("files/")).toEqual(["files/a"]);
  expect(await second.list("files/")).toEqual([]);
  expect(await whole.list("top/")).toEqual(["top/a"]);
  await Promise.all([first.close(), second.close(), whole.close()]);
});

test("an upload that breaks off leaves no parts behind", async () => {
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

test("a missing bucket is reported as an error of the store", async () => {
  const store = open({ bucket: "absent" });
  await expect(writeText(store, "files/a", "x")).rejects.toThrow(StorageError);
  await expect(store.read("files/a")).rejects.toThrow(/^Reading on S3 failed: The specified bucket/);
  await store.close();
});

const MEBIBYTE = 1024 ** 2;

test("an object that is replaced during a read is never returned in parts of both versions", async () => {
  const store = open();
  await store.write("files/replaced", [Buffer.alloc(5 * MEBIBYTE, "a")]);
  const object = await store.read("files/replaced");
  await store.write("files/replaced", [Buffer.alloc(5 * MEBIBYTE, "b")]);
  const read = async (): Promise<void> => {
    for await (const _ of object?.chunks ?? []);
  };
  await expect(read()).rejects.toThrow(StorageError);
  await store.close();
});

describe("S3 that stops answering", () => {
  const timeouts = { callMs: 300, bodyMs: 600 };

  test.for<[string, (store: ObjectStore) => Promise<unknown>]>([
    ["a read", (store) => store.read("files/a")],
    ["a write", (store) => writeText(store, "files/a", "x")],
    ["a write of parts", (store) => store.write("files/b", [Buffer.alloc(9 * MEBIBYTE), Buffer.alloc(9 * MEBIBYTE)])],
    ["a deletion", (store) => store.delete("files/a")],
    ["a list", (store) => store.list("files/")],
    ["a measurement", (store) => store.measure("files/")],
  ])("%s ends with a StorageError that gives the reason", async ([, call]) => {
    await using proxy = await startFaultProxy(server.endpoint);
    const store = open({ client: server.createClient({ endpoint: proxy.endpoint }), timeouts });
    proxy.decide(() => "hold");
    await expect(call(store)).rejects.toThrow(StorageError);
    await expect(call(store)).rejects.toThrow(/on S3 failed: S3 did not answer within \d+ ms/);
    await store.close();
  });

  test("a read with a stalled body ends too", async () => {
    await using proxy = await startFaultProxy(server.endpoint);
    const store = open({ client: server.createClient({ endpoint: proxy.endpoint }), timeouts });
    await open().write("files/stalled", [Buffer.alloc(MEBIBYTE)]);
    proxy.decide(() => "stall");
    await expect(store.read("files/stalled")).rejects.toThrow("S3 did not answer within 300 ms");
    await store.close();
  });

  test("a reader may pause between chunks for longer than the timeout of a call", async () => {
    const store = open({ timeouts: { callMs: 20_000, bodyMs: 20_000 } });
    await store.write("files/slow", [Buffer.alloc(5 * MEBIBYTE)]);
    const object = await open({ timeouts: { callMs: 3000, bodyMs: 3000 } }).read("files/slow");
    let numBytes = 0;
    for await (const chunk of object?.chunks ?? []) {
      if (numBytes === 0) await sleep(3200);
      numBytes += chunk.byteLength;
    }
    expect(numBytes).toBe(5 * MEBIBYTE);
    await store.close();
  });
});
