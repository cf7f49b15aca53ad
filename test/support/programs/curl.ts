/** curl, with which the tests run the commands of the documentation. */
import { join } from "node:path";

import { ensureDebianPackages, isAptAvailable } from "./debian-packages.ts";
import { findProgram } from "./locate.ts";
import { MissingProgramError } from "./missing-program.ts";

/**
 * Returns the path of `curl`, the system's or Debian's in the cache.
 *
 * @throws MissingProgramError if it can be neither found nor downloaded.
 */
export async function ensureCurl(): Promise<string> {
  const found = findProgram("curl");
  if (found !== null) return found;
  let reason = "the system has none.";
  try {
    if (isAptAvailable()) {
      return join(await ensureDebianPackages({ packages: ["curl"], programs: ["curl"], megabytes: 4 }), "bin", "curl");
    }
  } catch (error) {
    reason = `it could not be fetched: ${(error as Error).message.trim()}`;
  }
  throw new MissingProgramError("curl", reason, "apt-get install -y curl (as root)");
}
