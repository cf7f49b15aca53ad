/** The tables of settings in the documentation have the names and defaults of the settings. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

import { settingDescriptions } from "../../functions/settings/config.ts";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const pages = ["README.md", ...readdirSync(join(repository, "docs")).map((name) => `docs/${name}`)];
const defaults = new Map(settingDescriptions.map(({ name, defaultText }) => [name, defaultText]));

interface Row {
  readonly page: string;
  readonly name: string;
  /** Null where the table says none. */
  readonly defaultText: string | null;
}

/** Rows below a header whose first columns are the name and the default. */
function settingRowsOf(page: string): Row[] {
  const tables = readFileSync(join(repository, page), "utf8").matchAll(/^\| name +\| default +\|.*\n((?:\|.*\n)+)/gm);
  return [...tables].flatMap(([, body]) =>
    [...body!.matchAll(/^\| `([A-Z0-9_]+)` \| (?:`([^`]*)`|(none)) \|/gm)].map(([, name, defaultText]) => ({
      page,
      name: name!,
      defaultText: defaultText ?? null,
    })),
  );
}

const rows = pages.filter((page) => page.endsWith(".md")).flatMap(settingRowsOf);

test("the documentation has tables of settings", () => {
  expect(new Set(rows.map(({ page }) => page)).size).toBeGreaterThan(1);
});

test.for(rows)("$page gives the default of $name", ({ name, defaultText }) => {
  expect(defaults.get(name)).toBe(defaultText);
});
