import { globSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";

import { pruneTypes } from "../../package/prune-types.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

const files = {
  "index.d.ts": 'export type { A } from "./inner/a.ts";\nimport type { Hono } from "hono";',
  "inner/a.d.ts": 'export type A = import("./b.js").B | import("../c.ts").C;',
  "inner/b.d.ts": 'import "../index.ts";',
  "c.d.ts": "export interface C {}",
  "internal.d.ts": 'export * from "./inner/a.ts";',
  "inner/internal.d.ts": "",
  "internal.js": "",
};

async function writeFiles(folder: string, texts: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, text] of Object.entries(texts)) {
    await mkdir(join(folder, dirname(path)), { recursive: true });
    await writeFile(join(folder, path), text);
  }
}

test("keeps modules, and the types that entries import", async () => {
  await using folder = await createTemporaryFolder();
  await writeFiles(folder.path, files);
  pruneTypes(folder.path, ["index.d.ts"]);
  const left = globSync("**/*.{js,ts}", { cwd: folder.path }).toSorted();
  expect(left).toEqual(["c.d.ts", "index.d.ts", "inner/a.d.ts", "inner/b.d.ts", "internal.js"]);
});

test("rejects a declaration that imports a missing file", async () => {
  await using folder = await createTemporaryFolder();
  await writeFiles(folder.path, { "index.d.ts": 'export * from "./gone.ts";' });
  expect(() => pruneTypes(folder.path, ["index.d.ts"])).toThrow(/gone\.d\.ts does not exist/);
  expect(() => pruneTypes(folder.path, ["entry.d.ts"])).toThrow(/entry\.d\.ts does not exist/);
});
