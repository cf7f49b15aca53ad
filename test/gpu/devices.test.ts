import { spawnSync } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

import { deviceSuites } from "../support/devices/device-suites.ts";
import { parseTestDevices } from "../support/devices/test-devices.ts";

test("the matrix of devices is the cpu, unless the environment names others", () => {
  expect(parseTestDevices(undefined)).toEqual(["cpu"]);
  expect(parseTestDevices("cpu, cuda,cpu")).toEqual(["cpu", "cuda"]);
  expect(() => parseTestDevices("cpu,tpu")).toThrow("FOVEA_TEST_DEVICES names tpu; it takes cpu and cuda.");
});

test("a device that does not start is named once with its reason, and the suites run on the cpu", () => {
  const script = `
    import { setup } from "./test/support/devices/provide-devices.ts";
    setup();
    console.log(process.env.FOVEA_TEST_DEVICES);
  `;
  const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "--eval", script], {
    env: { PATH: process.env.PATH, FOVEA_TEST_DEVICES: "cpu,cuda", LD_LIBRARY_PATH: process.env.LD_LIBRARY_PATH },
    encoding: "utf8",
  });
  const reported = `${stdout.trim()}: ${stderr}`;
  expect(reported).toMatch(/^(cpu,cuda: |cpu: The device suites run on the cpu: cuda does not start here\. \S.*\n)$/);
});

test("the device suites are the files whose tests take a device, and docs/gpu-experiments.md has all of them", () => {
  const repository = fileURLToPath(new URL("../..", import.meta.url));
  const suites = globSync("test/**/*.test.ts", { cwd: repository }).filter((path) =>
    /describe\.for\(testDevices\)/.test(readFileSync(join(repository, path), "utf8")),
  );
  expect(suites.sort()).toEqual(deviceSuites);
  const page = readFileSync(join(repository, "docs/gpu-experiments.md"), "utf8");
  expect(deviceSuites.filter((path) => !page.includes(`\`${path.slice("test/gpu/".length)}\``))).toEqual([]);
});
