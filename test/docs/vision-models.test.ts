/** The table of parts in docs/vision-models.md names files that exist. */
import { readFileSync } from "node:fs";
import { access } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const page = readFileSync(join(repository, "docs/vision-models.md"), "utf8");
const section = page.slice(page.indexOf("## The graphs"), page.indexOf("## Processing info"));
const files = [...section.matchAll(/^\| (`[^|]*`) \|/gm)].flatMap(([, cell]) =>
  [...cell!.matchAll(/`([\w./-]+\.ts)`/g)].map(([, file]) => file!),
);

test("the table lists parts", () => {
  expect(files.length).toBeGreaterThan(10);
});

test.for(files)("%s is a part of models", async (file) => {
  await expect(access(join(repository, "engine/models", file))).resolves.toBeUndefined();
});
