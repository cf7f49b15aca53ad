/** The S3 server of the tests: moto, which runs on Python. */
import { fileURLToPath } from "node:url";

import { locate } from "./locate.ts";
import { ensurePythonPackages } from "./python-packages.ts";

const requirements = fileURLToPath(new URL("moto-requirements.txt", import.meta.url));

/**
 * Returns the path of `moto_server`.
 *
 * @throws MissingProgramError if it can be neither found nor downloaded.
 */
export function ensureMotoServer(): Promise<string> {
  return locate({
    name: "moto, an S3 server",
    variable: "MOTO_SERVER",
    fetch: () =>
      ensurePythonPackages({
        name: "moto",
        description: "moto, an S3 server (31 MB, with pip)",
        requirements,
        launcher: "moto_server",
        script: "moto_server",
      }),
    system: ["moto_server"],
    debianPackages: "python3 python3-pip",
  });
}
