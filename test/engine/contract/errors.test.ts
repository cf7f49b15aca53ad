/** The engine also runs in programs that have no settings of the service. */
import { glob, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

import { settingDescriptions } from "../../../functions/settings/config.ts";

const engineFolder = fileURLToPath(new URL("../../../engine", import.meta.url));

/** Literals and template texts of a module, without comments and the expressions inside of templates. */
function textsOf(source: string): string[] {
  const code = source.replaceAll(/\/\*[^]*?\*\//g, "").replaceAll(/^\s*\/\/.*$/gm, "");
  const templates = code.replaceAll(/\$\{[^}]*\}/g, "…");
  return templates.match(/"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`/g) ?? [];
}

/** Google's library reads it in every program. */
const namesOfLibraries = new Set(["GOOGLE_APPLICATION_CREDENTIALS"]);

test("no message of the engine names an environment variable of the service: errors have a `setting`", async () => {
  const names = settingDescriptions.map(({ name }) => name).filter((name) => !namesOfLibraries.has(name));
  const pattern = new RegExp(`\\b(?:${names.join("|")})\\b`);
  const found: string[] = [];
  for await (const file of glob("**/*.ts", { cwd: engineFolder })) {
    const texts = textsOf(await readFile(`${engineFolder}/${file}`, "utf8"));
    found.push(...texts.filter((text) => pattern.test(text)).map((text) => `${file}: ${text}`));
  }
  expect(names.length).toBeGreaterThan(100);
  expect(found).toEqual([]);
});
