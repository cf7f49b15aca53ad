import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";

import { modelDefinitions } from "../support/engine/shipped-models.ts";

test("docs/models.md lists the architectures that are served, and no others", async () => {
  const page = await readFile(new URL("../../docs/models.md", import.meta.url), "utf8");
  const rows = page.matchAll(/^\| .+ \| (`\w+`(?:, `\w+`)*) \|$/gm);
  const listed = [...rows].flatMap(([, names]) => names!.split(", ")).map((name) => name.slice(1, -1));
  const served = modelDefinitions.map(({ architecture }) => architecture);
  expect([...new Set(listed)].toSorted()).toEqual([...new Set(served)].toSorted());
});
