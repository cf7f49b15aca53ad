/** The source of uploaded files: what it sends to whom, its limits, and its errors when the store fails. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";

import type { EngineError } from "../../../engine/index.ts";
import { DamageLog } from "../../../functions/batch/damaged-records.ts";
import { StoredFiles } from "../../../functions/batch/stored-files.ts";
import { tenantTag } from "../../../functions/batch/tenant-records.ts";
import { createUploadedFileSource } from "../../../functions/batch/uploaded-file-source.ts";
import { createFolderObjectStore } from "../../../functions/storage/folder-object-store.ts";
import { StorageError } from "../../../functions/storage/object-store.ts";
import type { ObjectStore } from "../../../functions/storage/object-store.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

const content = Buffer.from("a file");
const HOUR_SECONDS = 3600;

let folder: TemporaryFolder;
let nowMs: number;
/** Replaces calls of the store. */
let faults: Partial<ObjectStore>;
let files: StoredFiles;
let id: string;

const silent = { debug() {}, info() {}, warn() {}, error() {} };

beforeEach(async () => {
  folder = await createTemporaryFolder();
  nowMs = 1_800_000_000_000;
  faults = {};
  const store = createFolderObjectStore(folder.path);
  const faulty: ObjectStore = {
    ...store,
    read: async (key) => (faults.read === undefined ? store.read(key) : faults.read(key)),
  };
  files = new StoredFiles({ store: faulty, now: () => nowMs, retentionMs: null, damage: new DamageLog(silent) });
  id = files.newId();
  const numBytes = await files.receive(id, asChunks(content.subarray(0, 2), content.subarray(2)));
  const lifetime = { expiresAfterSeconds: HOUR_SECONDS };
  await files.publish("tenant-a", { id, numBytes, filename: "a.png", purpose: "vision", ...lifetime });
});

afterEach(() => folder[Symbol.asyncDispose]());

async function* asChunks(...chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}

const source = createUploadedFileSource(() => async () => ({ files }));
const running = new AbortController().signal;
const options = { signal: running, maxImageBytes: content.length, tenant: "tenant-a" };

/** The error of a fetch. */
async function errorOf(fetching: Promise<unknown>): Promise<EngineError> {
  return (await fetching.then(
    () => expect.unreachable(),
    (error: unknown) => error,
  )) as EngineError;
}

test("a file is sent to its tenant, and is unchanged from then on", async () => {
  const numBytes: number[] = [];
  const counted = { ...options, onBytes: (number: number) => numBytes.push(number) };
  const first = await source.fetchIfChanged!(`file-id:${id}`, { ...counted, validator: null });
  expect(first).toEqual({ kind: "fetched", bytes: content, validator: id });
  expect(numBytes.reduce((sum, number) => sum + number, 0)).toBe(content.length);
  expect(await source.fetchIfChanged!(`file-id:${id}`, { ...options, validator: id })).toEqual({ kind: "unchanged" });
  expect(await source.fetch(`file-id:${id}`, options)).toEqual(content);
});

test.for<[string, () => Promise<unknown>, RegExp]>([
  [
    "of another tenant",
    async () => source.fetch(`file-id:${id}`, { ...options, tenant: "tenant-b" }),
    /is not an uploaded/,
  ],
  ["of no tenant", async () => source.fetch(`file-id:${id}`, { ...options, tenant: undefined }), /is not an uploaded/],
  ["that never existed", async () => source.fetch(`file-id:${files.newId()}`, options), /is not an uploaded file/],
  [
    "whose id leads elsewhere",
    async () => source.fetch("file-id:../../etc/passwd", options),
    /"\.\.\/\.\.\/etc\/passwd"/,
  ],
  ["without an id", async () => source.fetch("file-id:", options), /The image "" is not an uploaded file/],
  [
    "that was deleted",
    async () => {
      await source.fetch(`file-id:${id}`, options);
      await files.delete("tenant-a", id);
      await source.fetchIfChanged!(`file-id:${id}`, { ...options, validator: id });
    },
    /is not an uploaded file/,
  ],
  [
    "that has expired",
    async () => {
      nowMs += HOUR_SECONDS * 1000;
      await source.fetchIfChanged!(`file-id:${id}`, { ...options, validator: id });
    },
    /has expired/,
  ],
  [
    "of a service without a store",
    async () => createUploadedFileSource(() => undefined).fetch(`file-id:${id}`, options),
    /no store of files: see BATCH_STORE/,
  ],
])("a file %s is refused", async ([, fetching, message]) => {
  const error = await errorOf(fetching());
  expect(error.code).toBe("invalid_image_reference");
  expect(error.message).toMatch(message);
});

test("a file above the limit is refused before it is read", async () => {
  const limited = { ...options, maxImageBytes: content.length - 1 };
  expect(await errorOf(source.fetch(`file-id:${id}`, limited))).toMatchObject({
    code: "image_too_large",
    message: "The image has 6 bytes; the limit is 5.",
  });
});

test("an error of the store, and a damaged record, are answered as unreachable", async () => {
  await writeFile(join(folder.path, `files/${tenantTag("tenant-a")}.${id}`), "{");
  const damaged = await errorOf(source.fetch(`file-id:${id}`, options));
  expect(damaged).toMatchObject({
    code: "image_unreachable",
    message: expect.stringMatching(/damaged; upload it again/),
  });
  faults = { read: async () => Promise.reject(new StorageError("Reading", new Error("secret-host"))) };
  const unreachable = await errorOf(source.fetch(`file-id:${id}`, options));
  expect(unreachable).toMatchObject({ code: "image_unreachable", message: expect.not.stringContaining("secret") });
});

test("a fetch ends with its signal although the store does not answer, and counts no bytes afterwards", async () => {
  const answer = Promise.withResolvers<void>();
  const store = createFolderObjectStore(folder.path);
  faults = {
    async read(key) {
      if (key.startsWith("contents/")) await answer.promise;
      return store.read(key);
    },
  };
  const aborting = new AbortController();
  let numBytes = 0;
  const fetching = source.fetch(`file-id:${id}`, {
    ...options,
    signal: aborting.signal,
    onBytes: (number) => (numBytes += number),
  });
  aborting.abort(new Error("the client has gone"));
  await expect(fetching).rejects.toThrow("the client has gone");
  answer.resolve();
  expect(await source.fetch(`file-id:${id}`, options)).toEqual(content);
  expect(numBytes).toBe(0);
});
