/**
 * The Containerfiles and settings of docs/processors-in-the-image.md, without a container engine: their COPY, RUN and
 * ENV lines are carried out below a temporary folder that stands for the image's root, and the service starts with
 * them. The base image is the repository.
 */
import { execFile } from "node:child_process";
import { chmod, cp, mkdir, readdir, readFile, rename, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeEach, afterEach, expect, test } from "vitest";

import { npmEnvironment } from "../support/programs/npm-environment.ts";
import { startCli } from "../support/service/cli-process.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const page = await readFile(join(repository, "docs/processors-in-the-image.md"), "utf8");
const run = promisify(execFile);

let folder: TemporaryFolder;
/** The build's folder, and the root of the image. */
let context: string;
let root: string;

beforeEach(async () => {
  folder = await createTemporaryFolder();
  context = join(folder.path, "context");
  root = join(folder.path, "root");
  await mkdir(context);
  await mkdir(root);
});

afterEach(() => folder[Symbol.asyncDispose]());

/** The text of the code block with this heading, or of the n-th one of a language. */
function block(heading: string, index = 0): string {
  const blocks = [...page.matchAll(/^```(.+)\n([^]*?)\n```$/gm)].filter(([, kind]) => kind === heading);
  const found = blocks[index]?.[2];
  if (found === undefined) throw new Error(`The page has no block ${heading}.`);
  return found;
}

/**
 * Carries out a Containerfile; returns the environment of the last stage. Paths of the image are below `root`, which
 * all stages share.
 */
async function build(containerfile: string): Promise<Record<string, string>> {
  let environment: Record<string, string> = {};
  let workingFolder = root;
  for (const line of containerfile.split("\n").filter((text) => text !== "")) {
    const [instruction, ...words] = line.split(" ");
    const [first = "", second = "", third = ""] = words;
    if (instruction === "FROM") environment = {};
    else if (instruction === "WORKDIR") await mkdir((workingFolder = join(root, first)), { recursive: true });
    else if (instruction === "ENV") environment[first.split("=", 1).join("")] = first.slice(first.indexOf("=") + 1);
    else if (instruction === "RUN") await run(first, words.slice(1), { cwd: workingFolder, env: npmEnvironment() });
    else if (instruction === "COPY" && !first.startsWith("--")) {
      const target = second === "./" ? join(workingFolder, first) : join(root, second);
      await cp(join(context, first), target, { recursive: true });
    } else if (instruction !== "COPY" || second !== third) {
      throw new Error(`The test does not know how to carry out ${line}.`);
    }
  }
  return environment;
}

/** Starts the service as the container would, and returns what GET /v1/logits-processors lists. */
async function processorsOfService(environment: Readonly<Record<string, string>>): Promise<string[]> {
  const path = join(root, environment.LOGITS_PROCESSOR_PATH ?? "");
  await using service = startCli(["serve"], {
    HOST: "127.0.0.1",
    PORT: "0",
    ...environment,
    LOGITS_PROCESSOR_PATH: path,
  });
  const { port } = await service.waitForLog("Listening.");
  const { logitsProcessors } = await service.waitForLog("Ready.");
  const answer = await fetch(`http://127.0.0.1:${port as number}/v1/logits-processors`);
  const { data } = (await answer.json()) as { data: { id: string }[] };
  expect(data.map(({ id }) => id)).toEqual(logitsProcessors);
  return data.map(({ id }) => id);
}

const names = ["processors.dry:Dry", "processors.steer-length:SteerLength"];

async function prepareContext(): Promise<void> {
  await run("sh", ["-ec", block("sh")], { cwd: context, env: { PATH: process.env.PATH, FOVEA: repository } });
}

test("a layer of files brings its processors", async () => {
  await prepareContext();
  const environment = await build(block("Dockerfile Containerfile"));
  // As on a read-only file system.
  await chmod(join(root, "plugins/processors"), 0o555);
  expect(await processorsOfService(environment)).toEqual(names);
  await chmod(join(root, "plugins/processors"), 0o755);
});

test("a package that announces its processors needs no name", async () => {
  const source = join(folder.path, "acme");
  await mkdir(source);
  const announcement = { logitsProcessors: { never_twice: "./never-twice.js:NeverTwice" } };
  const description = { name: "acme-steering", version: "1.0.0", type: "module", fovea: announcement };
  const peer = { peerDependencies: { fovea: "*" } };
  await writeFile(join(source, "package.json"), JSON.stringify({ ...description, ...peer }));
  const program = `import { RequestLogitsProcessorAdapter } from "fovea";
export class NeverTwice extends RequestLogitsProcessorAdapter {
  isArgmaxInvariant() { return false; }
  newRequestLogitsProcessor() { return null; }
}`;
  await writeFile(join(source, "never-twice.js"), program);
  await run("npm", ["pack", "--pack-destination", context], { cwd: source, env: npmEnvironment() });
  const environment = await build(block("Dockerfile Containerfile.package"));
  expect(await readdir(join(root, "plugins/node_modules"))).not.toContain("fovea");
  expect(await processorsOfService(environment)).toEqual(["never_twice of acme-steering"]);
});

test("a mounted folder of links, as of a ConfigMap, is followed", async () => {
  await prepareContext();
  const mounted = join(root, "plugins/processors");
  await mkdir(dirname(mounted), { recursive: true });
  await mkdir(mounted);
  await rename(join(context, "processors"), join(mounted, "..2026_01_01"));
  await symlink("..2026_01_01", join(mounted, "..data"));
  for (const name of ["dry.ts", "numbers.ts"]) await symlink(`..data/${name}`, join(mounted, name));
  const environment = { LOGITS_PROCESSOR_PATH: "/plugins", LOGITS_PROCESSORS: "processors.dry:Dry" };
  expect(await processorsOfService(environment)).toEqual(["processors.dry:Dry"]);
});

test("the deployment's settings are in the manifests", async () => {
  const file = join(context, "deployment.yaml");
  await writeFile(file, block("yaml deployment.yaml"));
  await using rendering = startCli(["render", "--platform", "kubernetes", "--deployment", file]);
  expect(await rendering.exitCode).toBe(0);
  expect(rendering.stdout()).toContain("processors.dry:Dry");
});

test("a name that cannot be loaded ends the start with exit code 2", async () => {
  await using service = startCli(["serve"], {
    PORT: "0",
    LOGITS_PROCESSOR_PATH: root,
    LOGITS_PROCESSORS: "processors.dry:Dry",
  });
  expect(await service.exitCode).toBe(2);
});
