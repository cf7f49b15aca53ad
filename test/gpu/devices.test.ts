import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";

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
