/** The commands of docs/deployment.md and the pages beside it that need no platform, and the deployment file. */
import { execFile } from "node:child_process";
import { access, readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { deploymentFields, parseDeployment } from "../../infra/deployment.ts";
import { deploymentTargets } from "../../infra/targets.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const page = await readFile(join(repository, "docs/deployment.md"), "utf8");
const platforms = await readFile(join(repository, "infra/README.md"), "utf8");
const image = await readFile(join(repository, "docs/container-image.md"), "utf8");

test("every render command of the pages writes files, and every platform has one", async () => {
  const commands = `${page}\n${platforms}`.match(/^npm start -s -- render --platform .*$/gm) ?? [];
  const names = commands.map((command) => /--platform (\S+)/.exec(command)![1]!);
  expect(names.toSorted()).toEqual(deploymentTargets.map(({ name }) => name).toSorted());
  await using folder = await createTemporaryFolder();
  const run = async (command: string): Promise<void> => {
    const output = join(folder.path, /--platform (\S+)/.exec(command)![1]!);
    // Into a file of its own instead of one of this folder or the next command of a pipe.
    const elsewhere = command.replace(/ (--output \S+|> \S+|\|.*)$/, ` --output ${output}`);
    await promisify(execFile)("sh", ["-ec", elsewhere], { cwd: repository });
    expect(await readdir(output)).not.toHaveLength(0);
  };
  // As many at once as a small machine has cores for.
  while (commands.length > 0) await Promise.all(commands.splice(0, 2).map(run));
}, 120_000);

test("the page's deployment is valid, and its table lists every field", () => {
  parseDeployment(/```yaml\n([^]*?)```/.exec(page)?.[1] ?? "");
  const told = [...page.matchAll(/^\| (`\w+`(?:, `\w+`)*) \|/gm)].flatMap(([, names]) => names!.match(/\w+/g) ?? []);
  for (const field of deploymentFields) expect(told).toContain(field);
});

test("the builds of the pages name files that exist", async () => {
  const files = [...`${page}\n${image}`.matchAll(/-f (container\/\S+)/g)];
  expect(files).not.toHaveLength(0);
  for (const [, path] of files) await access(join(repository, path!));
});
