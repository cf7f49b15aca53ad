/** The schemas that platforms publish, from the Python clients of Google, AWS and Microsoft. */
import { createHash } from "node:crypto";
import { copyFile, mkdir, readFile, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

import { ensureFolder } from "./cache-folder.ts";
import { locate } from "./locate.ts";
import { installWheels } from "./python.ts";

const requirements = fileURLToPath(new URL("platform-schemas-requirements.txt", import.meta.url));

/** Files of the packages. The others have 200 MB. */
const schemaFiles = {
  "run.v1.json": "googleapiclient/discovery_cache/documents/run.v1.json",
  "aiplatform.v1.json": "googleapiclient/discovery_cache/documents/aiplatform.v1.json",
  "ecs.json.gz": "botocore/data/ecs/2014-11-13/service-2.json.gz",
  "container-apps.py": "azure/mgmt/appcontainers/models/_models.py",
} as const;

export type SchemaFile = keyof typeof schemaFiles;

/**
 * Returns the path of the folder with the files of `schemaFiles`.
 *
 * @throws MissingProgramError if it can be neither found nor downloaded.
 */
export function ensurePlatformSchemas(): Promise<string> {
  return locate({
    name: "the schemas of platforms",
    variable: "PLATFORM_SCHEMAS",
    fetch: async () => {
      const hash = createHash("sha256").update(await readFile(requirements));
      return ensureFolder({
        name: `platform-schemas-${hash.digest("hex").slice(0, 16)}`,
        description: "schemas of Google, AWS and Azure (32 MB, with pip; 3 MB are kept)",
        fill: fillFolder,
      });
    },
    system: [],
    debianPackages: "python3 python3-pip",
  });
}

async function fillFolder(folder: string): Promise<void> {
  const packages = join(folder, `${basename(folder)}-packages`);
  await mkdir(packages);
  await installWheels(requirements, packages, ["--no-deps"]);
  for (const [name, path] of Object.entries(schemaFiles)) await copyFile(join(packages, path), join(folder, name));
  await rm(packages, { recursive: true });
}
