import { resolve } from "node:path";
import { expect, test } from "vitest";

import { loadConfig } from "../../../functions/settings/config.ts";

test.for<[Record<string, string>, object]>([
  [{ XDG_DATA_HOME: "/data" }, { kind: "folder", folder: "/data/fovea/batches" }],
  [{ BATCH_STORE: "batches" }, { kind: "folder", folder: resolve("batches") }],
  [{ BATCH_STORE: "s3://bucket" }, { kind: "s3", bucket: "bucket", prefix: "" }],
  [{ BATCH_STORE: "S3://bucket//team/fovea/" }, { kind: "s3", bucket: "bucket", prefix: "team/fovea" }],
  [{ BATCH_STORE: "None" }, { kind: "none" }],
])("with %j batches are kept in %j", ([environment, store]) => {
  expect(loadConfig(environment).batches.store).toEqual(store);
});

test.for(["s3://", "https://bucket", "redis://here"])("%s is an invalid place for batches", (BATCH_STORE) => {
  expect(() => loadConfig({ BATCH_STORE })).toThrow(
    /BATCH_STORE is .* expected a folder, s3:\/\/bucket\/prefix or none/,
  );
});

test("batches cannot have more sequences than the engine", () => {
  expect(loadConfig({ MAX_NUM_SEQS: "4", BATCH_MAX_NUM_SEQS: "4" }).batches.maxNumSequences).toBe(4);
  expect(() => loadConfig({ MAX_NUM_SEQS: "4", BATCH_MAX_NUM_SEQS: "5" })).toThrow(
    "BATCH_MAX_NUM_SEQS is 5: expected at most MAX_NUM_SEQS, which is 4.",
  );
  const copies = { DATA_PARALLEL_SIZE: "2", MAX_NUM_SEQS: "4" };
  expect(loadConfig({ ...copies, BATCH_MAX_NUM_SEQS: "8" }).batches.maxNumSequences).toBe(8);
  expect(() => loadConfig({ ...copies, BATCH_MAX_NUM_SEQS: "9" })).toThrow(
    "BATCH_MAX_NUM_SEQS is 9: expected at most DATA_PARALLEL_SIZE (2) times MAX_NUM_SEQS, which is 4.",
  );
});
