/** `fovea render`: renders a deployment file for a platform. Reads no settings. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";

import { parseDeployment } from "../../infra/deployment.ts";
import type { Deployment } from "../../infra/deployment.ts";
import { deploymentTargets } from "../../infra/targets.ts";
import { ConfigError } from "../settings/setting.ts";
import { makeFolder } from "../storage/make-folder.ts";
import type { Rendering } from "./arguments.ts";

/**
 * Names the written files on standard error, so that standard output contains only rendered files. Throws ConfigError
 * for an unknown platform, a file that cannot be read or written, and a deployment that is invalid or not supported by
 * the platform. Nothing is written then.
 */
export async function render({ platform, deployment, folder }: Rendering): Promise<void> {
  const target = deploymentTargets.find(({ name }) => name === platform);
  if (target === undefined) {
    const names = deploymentTargets.map(({ name }) => name).join(", ");
    throw new ConfigError([`There is no platform ${platform}; platforms: ${names}.`]);
  }
  const parsed = parseDeployment(await readDeployment(deployment));
  await requireJobSource(parsed);
  const files = target.render(parsed);
  if (folder === null) return void process.stdout.write(files.map((file) => file.text).join(""));
  try {
    await makeFolder(folder, 0o777);
    for (const file of files) {
      const path = join(folder, file.path);
      await writeFile(path, file.text);
      console.error(`fovea: Wrote ${path}.`);
    }
  } catch (error) {
    throw new ConfigError([`--output ${folder} cannot be written: ${describe(error)}.`]);
  }
}

/** The service's own check of the address. RunPod gives its workers the rest of theirs. */
async function requireJobSource({ config: { jobs } }: Deployment): Promise<void> {
  if (jobs.source === null || jobs.source === "runpod://") return;
  const { readJobSource } = await import("../jobs/sources/job-sources.ts");
  try {
    readJobSource(jobs.source, jobs.runpod);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new ConfigError(error.problems.map((problem) => `environment.JOB_SOURCE: ${problem}`));
  }
}

async function readDeployment(path: string): Promise<string> {
  try {
    return path === "-" ? await text(process.stdin) : await readFile(path, "utf8");
  } catch (error) {
    throw new ConfigError([`--deployment ${path} cannot be read: ${describe(error)}.`]);
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
