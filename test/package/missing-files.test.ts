import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";

import { moduleUrl } from "../../engine/module-url.ts";
import { findMissingFiles } from "../../package/missing-files.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

test("the build reports modules and files that would be missing from the package", async () => {
  await using folder = await createTemporaryFolder();
  const files = {
    "engine/a.js": 'new URL("./kernel/a.wasm", import.meta.url); moduleUrl("./worker", import.meta.url);',
    "engine/b.js": 'new URL("./worker.ts", import.meta.url); moduleUrl("./thread", import.meta.url);',
    "functions/c.js": 'new URL("../models/", import.meta.url); new URL("../../package.json", import.meta.url);',
    "functions/playground/page.js": 'new URL("..", import.meta.url); new URL("nowhere", import.meta.url);',
    "engine/worker.js": "",
    "engine/kernel/a.wasm": "",
    "models/config.json": "",
  };
  for (const [path, text] of Object.entries(files)) {
    await mkdir(join(folder.path, dirname(path)), { recursive: true });
    await writeFile(join(folder.path, path), text);
  }
  expect(findMissingFiles(folder.path).toSorted()).toEqual([
    "engine/b.js names engine/thread.js",
    "engine/b.js names engine/worker.ts",
    "functions/c.js names ../package.json",
  ]);
});

test("a module URL has the suffix of the module that requests it", () => {
  const here = "file:///repository/engine/thread/engine-thread";
  expect(moduleUrl("./worker", `${here}.ts`).href).toBe("file:///repository/engine/thread/worker.ts");
  expect(moduleUrl("../index", `${here}.js?v=1`).href).toBe("file:///repository/engine/index.js");
});
