import { execFile } from "node:child_process";
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const main = fileURLToPath(new URL("../../../functions/cli/main.js", import.meta.url));
const manifest = JSON.parse(await readFile(new URL("../../../package.json", import.meta.url), "utf8")) as {
  readonly version: string;
  readonly engines: { readonly node: string };
};

/** The entry alone, in a folder without packages. */
async function copyOfMain(folder: string): Promise<string> {
  const copy = join(folder, "functions/cli/main.js");
  await mkdir(dirname(copy), { recursive: true });
  await writeFile(join(folder, "package.json"), '{ "type": "module" }');
  await copyFile(main, copy);
  return copy;
}

/** `fovea --version` under a Node that reports another version. */
async function runUnder(nodeVersion: string, entry = main) {
  const source = `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "${nodeVersion}" } })`;
  const preload = `data:text/javascript,${encodeURIComponent(source)}`;
  try {
    return { code: 0, ...(await promisify(execFile)(process.execPath, ["--import", preload, entry, "--version"])) };
  } catch (error) {
    return error as { readonly code: number; readonly stdout: string; readonly stderr: string };
  }
}

test.for(["18.20.8", "20.20.2", "22.21.1", "24.5.0"])(
  "Node %s prints one line with the required version",
  async (old) => {
    const { code, stderr } = await runUnder(old);
    expect(code).toBe(2);
    expect(stderr).toMatch(
      new RegExp(`^fovea: Fovea needs Node\\.js 24\\.6 or newer; this is ${old}\\. Run npm ci in the checkout, .*\n$`),
    );
  },
);

test.for(["24.6.0", "25.0.0", "26.1.0"])("Node %s runs the command", async (version) => {
  expect((await runUnder(version)).stdout).toBe(`${manifest.version}\n`);
});

test("outside of a checkout, an old Node is told how to install another one", async () => {
  await using folder = await createTemporaryFolder();
  const copy = await copyOfMain(folder.path);
  const { code, stderr } = await runUnder("20.20.2", copy);
  expect(code).toBe(2);
  expect(stderr).toMatch(/; this is 20\.20\.2\. Install a newer one.*\n$/);
});

test("a checkout whose packages are not installed ends with one line", async () => {
  await using folder = await createTemporaryFolder();
  const copy = await copyOfMain(folder.path);
  await writeFile(join(folder.path, "functions/cli/run.ts"), 'import "zod";\nexport const run = () => {};\n');
  const installed = await runUnder(process.versions.node, copy);
  expect(installed).toMatchObject({
    code: 2,
    stderr: "fovea: The package zod is not installed. Install Fovea again.\n",
  });
  await writeFile(join(folder.path, "package-lock.json"), "{}");
  const checkout = await runUnder(process.versions.node, copy);
  expect(checkout).toMatchObject({
    code: 2,
    stderr: "fovea: The package zod is not installed. Run npm ci in the checkout.\n",
  });
});

test("package.json requires the same Node", () => {
  expect(manifest.engines.node).toBe(">=24.6.0");
});

test("the entry imports nothing that an old Node lacks", async () => {
  const source = await readFile(main, "utf8");
  expect(source.match(/^import .*$/gm)).toEqual([
    'import module from "node:module";',
    'import { tmpdir } from "node:os";',
    'import { join } from "node:path";',
  ]);
});
