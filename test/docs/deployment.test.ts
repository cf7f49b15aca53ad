/** The commands of docs/deployment.md that need no platform, and its description of the deployment file. */
import { execFile } from "node:child_process";
import { access, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { deploymentFields, parseDeployment } from "../../infra/deployment.ts";
import { deploymentTargets } from "../../infra/targets.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const page = await readFile(join(repository, "docs/deployment.md"), "utf8");

test("every render command of the page writes the files that it names", async () => {
  const commands = page.match(/^npm start -s -- render --platform .*$/gm) ?? [];
  expect(commands).toHaveLength(deploymentTargets.length);
  await using folder = await createTemporaryFolder();
  for (const command of commands) {
    const elsewhere = command.replace("manifests", join(folder.path, "manifests")).replace("> ", `> ${folder.path}/`);
    await promisify(execFile)("sh", ["-ec", elsewhere], { cwd: repository });
  }
  for (const name of ["manifests/deployment.yaml", "cloud-run.yaml", "endpoint.json"]) {
    await access(join(folder.path, name));
  }
});

test("the page's deployment is valid, and its table lists every field", () => {
  parseDeployment(/```yaml\n([^]*?)```/.exec(page)?.[1] ?? "");
  const told = [...page.matchAll(/^\| (`\w+`(?:, `\w+`)*) \|/gm)].flatMap(([, names]) => names!.match(/\w+/g) ?? []);
  for (const field of deploymentFields) expect(told).toContain(field);
});

test("every file that the page links exists", async () => {
  const links = [...page.matchAll(/\]\((?!http|#)([^)#]+)\)/g)].map(([, path]) => join(repository, "docs", path!));
  expect(links.length).toBeGreaterThan(3);
  for (const path of links) await access(path);
  for (const [, path] of page.matchAll(/-f (container\/\S+)/g)) await access(join(repository, path!));
});
