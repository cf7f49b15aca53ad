/** Building in a thread of its own says the same as building here. */
import { expect, test } from "vitest";

import { BuildThread } from "../../engine/models/build-thread.ts";
import { loadGoldens } from "../support/goldens.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import { buildFrom } from "./direct-build.ts";

const common = { dtype: "int8", device: "cpu", maxModelLen: null, numThreads: 1 } as const;

test("a model built in a thread is the one built here, and progress is told", async () => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("llava-default");
  const tasks: string[] = [];
  await using thread = new BuildThread();
  const model = await thread.build(checkpointFolder, {
    ...common,
    cacheFolder: cache.path,
    onProgress: ({ task }) => void tasks.push(task),
  });
  expect(model).toEqual(await buildFrom(checkpointFolder, { cacheFolder: cache.path, dtype: "int8" }));
  expect(tasks).toContain("preparing weights");
});

test("what is wrong with a checkpoint is told as it is without a thread", async () => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("llama");
  const options = { ...common, cacheFolder: cache.path, maxModelLen: 1_000_000 };
  const here = await buildFrom(checkpointFolder, options).catch((error: unknown) => error);
  await using thread = new BuildThread();
  await expect(thread.build(checkpointFolder, options)).rejects.toEqual(here);
  await using another = new BuildThread();
  await expect(another.build(cache.path, options)).rejects.toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringContaining("has no config.json"),
  });
});

test("an abort ends it", async () => {
  await using cache = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("llama");
  const options = { ...common, cacheFolder: cache.path, signal: AbortSignal.abort() };
  await using thread = new BuildThread();
  await expect(thread.build(checkpointFolder, options)).rejects.toMatchObject({ code: "aborted" });
});

test("a thread that is given nothing to build ends when it is disposed of", async () => {
  await using thread = new BuildThread();
  expect(thread).toBeInstanceOf(BuildThread);
});
