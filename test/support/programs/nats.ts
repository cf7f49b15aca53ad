/** The NATS server of the tests. */
import { join } from "node:path";

import { ensureDebianPackages, isAptAvailable } from "./debian-packages.ts";
import { locate } from "./locate.ts";

/**
 * Returns the path of `nats-server`.
 *
 * @throws MissingProgramError if it can be neither found nor downloaded.
 */
export function ensureNatsServer(): Promise<string> {
  return locate({
    name: "NATS",
    variable: "NATS_SERVER",
    fetch: isAptAvailable() ? fetchNats : null,
    system: ["nats-server", "/usr/sbin/nats-server"],
    debianPackages: "nats-server",
  });
}

async function fetchNats(): Promise<string> {
  const folder = await ensureDebianPackages({ packages: ["nats-server"], programs: [], megabytes: 4 });
  return join(folder, "usr/sbin/nats-server");
}
