/** Finds pipeline modules: folders of the user's, installed packages, and those that ship with Fovea. */
import { readdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

import { describeError } from "../excerpt.ts";
import { findAnnouncements } from "../installed-packages.ts";
import { loadedWithin } from "../loaded-within.ts";
import type { PipelineModule } from "../models/pipelines/pipeline.ts";
import { prepareProcessorModules } from "../sampling/custom/processor-modules.ts";

export interface LoadedPipelineModule extends PipelineModule {
  /** The folder or package, or the name of a built-in one. */
  readonly location: string;
  /** The path of its file; null for a built-in one. */
  readonly file: string | null;
}

export interface PipelineModules {
  /** In the order in which they are asked: folders, packages, built-in. */
  readonly modules: readonly LoadedPipelineModule[];
  /** A sentence for each module that was left out. */
  readonly problems: readonly string[];
}

interface FoundModule extends Pick<LoadedPipelineModule, "location" | "file"> {
  readonly load: () => Promise<unknown>;
}

const builtIn: readonly FoundModule[] = [
  { location: "llava", file: null, load: () => import("../models/llava/pipelines.ts") },
  { location: "minigpt4", file: null, load: () => import("../models/minigpt4/pipelines.ts") },
];

const fileNames = ["pipelines.ts", "pipelines.mts", "pipelines.js", "pipelines.mjs"];

/** More than any folder has, so that a folder that is not meant for pipelines does not delay the start. */
const MAX_SUBFOLDERS = 1000;

/**
 * Imports every module once. A module is a folder with a file `pipelines.ts` (or .mts, .js, .mjs), either one of
 * `searchPath` itself or right below one, or a package in a node_modules next to them whose package.json announces
 * `"fovea": {"pipelines": "./pipelines.js"}`. A module that does not load, or lacks a field, is left out.
 */
export async function findPipelineModules(searchPath: readonly string[]): Promise<PipelineModules> {
  const problems: string[] = [];
  const found = [...(await findInFolders(searchPath, problems)), ...(await findInPackages(searchPath, problems))];
  if (found.length > 0) prepareProcessorModules();
  const modules: LoadedPipelineModule[] = [];
  for (const { location, file, load } of [...found, ...builtIn]) {
    try {
      modules.push({ ...checkModule(await loadedWithin(load())), location, file });
    } catch (error) {
      problems.push(`The pipeline module ${location} is left out: ${describeError(error)}.`);
    }
  }
  return { modules, problems };
}

async function findInFolders(searchPath: readonly string[], problems: string[]): Promise<FoundModule[]> {
  const found: FoundModule[] = [];
  for (const folder of searchPath.map((path) => resolve(path))) {
    const entries = await readdir(folder, { withFileTypes: true }).catch((error: unknown) => {
      problems.push(`The folder ${folder} of the pipeline path cannot be read: ${describeError(error)}.`);
      return [];
    });
    const subfolders = entries
      .filter((entry) => !entry.isFile() && entry.name !== "node_modules")
      .map(({ name }) => name);
    if (subfolders.length > MAX_SUBFOLDERS) {
      problems.push(`${folder} has ${subfolders.length} folders; only ${MAX_SUBFOLDERS} are searched for pipelines.`);
    }
    for (const name of ["", ...subfolders.slice(0, MAX_SUBFOLDERS).sort()]) {
      const location = join(folder, name);
      const files = new Set(await readdir(location).catch(() => []));
      const fileName = fileNames.find((candidate) => files.has(candidate));
      if (fileName === undefined) continue;
      const file = join(location, fileName);
      const url = pathToFileURL(file).href;
      found.push({ location, file, load: () => import(url) });
    }
  }
  return found;
}

async function findInPackages(searchPath: readonly string[], problems: string[]): Promise<FoundModule[]> {
  const announced = await findAnnouncements([...searchPath, "."], "pipelines").catch((error: unknown) => {
    problems.push(`Installed packages are not searched for pipelines: ${describeError(error)}.`);
    return [];
  });
  return announced.flatMap(({ packageName, folder, value }) => {
    if (typeof value === "string" && value.startsWith("./")) {
      const file = join(folder, value);
      const url = pathToFileURL(file).href;
      return [{ location: packageName, file, load: () => import(url) }];
    }
    problems.push(
      `package.json of ${packageName}: fovea.pipelines must be the path of a file, such as "./pipelines.js".`,
    );
    return [];
  });
}

function checkModule(exported: unknown): PipelineModule {
  const fields = exported as Partial<PipelineModule>;
  const { availablePipelines, getPipeline, getPipelineFromModelName } = fields;
  const isList = Array.isArray(availablePipelines) && availablePipelines.every((name) => typeof name === "string");
  if (!isList) throw new Error("it exports no list of names availablePipelines");
  if (typeof getPipeline !== "function") throw new Error("it exports no function getPipeline");
  if (typeof getPipelineFromModelName !== "function") {
    throw new Error("it exports no function getPipelineFromModelName");
  }
  return { availablePipelines, getPipeline, getPipelineFromModelName };
}
