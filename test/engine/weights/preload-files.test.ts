import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { createEngine } from "../../../engine/index.ts";
import { preloadFiles } from "../../../engine/weights/preload-files.ts";
import { goldenEngineConfig } from "../../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

const NUM_BYTES = 20 * 1024 ** 2 + 17;
const never = new AbortController().signal;
let folder: TemporaryFolder;
let file: string;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  file = join(folder.path, "weights.bin");
  await writeFile(file, new Uint8Array(NUM_BYTES));
});

afterAll(() => folder[Symbol.asyncDispose]());

test("every byte of a file is read once, however often it is named", async () => {
  expect(await preloadFiles([file, file], never)).toBe(NUM_BYTES);
});

test("reading ends near the limit of memory", async () => {
  const numBytes = await preloadFiles([file], never, 1);
  expect(numBytes).toBeGreaterThan(0);
  // The parts that were under way.
  expect(numBytes).toBeLessThan(NUM_BYTES + 1);
});

test("a missing file and a folder are left to those that need them", async () => {
  expect(await preloadFiles([join(folder.path, "missing"), folder.path, file], never)).toBe(NUM_BYTES);
});

test("an aborted start reads nothing more", async () => {
  expect(await preloadFiles([file], AbortSignal.abort())).toBe(0);
});

test.for(["llama", "onnx-exports/llama"])("the weights of %s are read while it loads", async (name) => {
  const read = Promise.withResolvers<number>();
  const engine = createEngine(
    { ...goldenEngineConfig(name, folder.path), preload: true },
    { onPhase: (phase, seconds) => phase === "preload" && read.resolve(seconds) },
  );
  await engine.ready;
  expect(await read.promise).toBeGreaterThanOrEqual(0);
  await engine.close();
});
