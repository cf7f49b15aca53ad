/** Global setup: finds out once whether the devices that FOVEA_TEST_DEVICES names start on this machine. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

import { parseTestDevices } from "./test-devices.ts";

const probe = fileURLToPath(new URL("probe-cuda.ts", import.meta.url));

/** The processes of the tests inherit what it sets. */
export function setup(): void {
  const wanted = parseTestDevices(process.env.FOVEA_TEST_DEVICES);
  const reason = wanted.includes("cuda") ? whyNoCuda() : null;
  // Without a GPU, the reference of the same suites runs.
  const devices = reason === null ? wanted : ["cpu"];
  process.env.FOVEA_TEST_DEVICES = devices.join(",");
  if (reason !== null) process.stderr.write(`The device suites run on the cpu: cuda does not start here. ${reason}\n`);
}

/** In a process of its own, which a driver may take down. Null where it starts. */
function whyNoCuda(): string | null {
  const { status, signal, stderr } = spawnSync(process.execPath, [probe], { encoding: "utf8" });
  if (status === 0) return null;
  return stderr.trim() || `Its process ended with ${signal ?? status}.`;
}
