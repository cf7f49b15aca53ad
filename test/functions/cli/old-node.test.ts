import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const main = fileURLToPath(new URL("../../../functions/cli/main.js", import.meta.url));
const manifest = JSON.parse(await readFile(new URL("../../../package.json", import.meta.url), "utf8")) as {
  readonly version: string;
  readonly engines: { readonly node: string };
};

/** `fovea --version` under a Node that reports another version. */
async function runUnder(nodeVersion: string) {
  const source = `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "${nodeVersion}" } })`;
  const preload = `data:text/javascript,${encodeURIComponent(source)}`;
  try {
    return { code: 0, ...(await promisify(execFile)(process.execPath, ["--import", preload, main, "--version"])) };
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
      new RegExp(`^fovea: Fovea needs Node\\.js 24\\.6 or newer; this is ${old}\\. Install a newer one.*\n$`),
    );
  },
);

test.for(["24.6.0", "25.0.0", "26.1.0"])("Node %s runs the command", async (version) => {
  expect((await runUnder(version)).stdout).toBe(`${manifest.version}\n`);
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
