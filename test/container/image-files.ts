/**
 * Assembles the files of an image without a container engine, by running the COPY and RUN lines of its stages below a
 * folder that represents the root. The machine's own programs replace the system packages of the stages.
 */
import { execFile } from "node:child_process";
import { cp, mkdir, rename } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { promisify } from "node:util";
import type { Instruction } from "dockerfile-ast";

import { npmEnvironment } from "../support/programs/npm-environment.ts";
import {
  copyOf,
  environmentOf,
  instructionsOf,
  readContext,
  readStages,
  repository,
  textOf,
} from "./container-file.ts";

const run = promisify(execFile);

/** The only folders that a RUN line may name by absolute paths: all others would be the machine's. */
const imageFolders =
  /^\/(app|runtime|native|video|sbom|usr\/local\/bin|usr\/local\/share\/sbom|var\/cache\/fovea|var\/lib\/fovea)(?=\/|$)/;
const absolutePath = /(?<![^\s"'=(:])\/[\w./-]*/g;

/** As root, the files are used by the image's user; other users cannot switch. */
export const imageUser = process.getuid?.() === 0 ? { uid: 65532, gid: 65532 } : {};

export interface ImageFiles {
  /** Stands for `/`. */
  readonly root: string;
  /** The image's environment, including PATH, with paths below `root`. */
  readonly environment: Readonly<Record<string, string>>;
}

/** Builds the target `cpu` in an empty `folder`. */
export async function buildImageFiles(folder: string): Promise<ImageFiles> {
  const stages = await readStages();
  const root = join(folder, "root");
  const inRoot = (text: string): string => text.replace(absolutePath, (path) => below(root, path));
  const environment = Object.fromEntries(
    Object.entries(environmentOf(instructionsOf(stages, "cpu"))).map(([name, value]) => [name, inRoot(value)]),
  );
  const builder = {
    folder,
    root,
    inRoot,
    environment: { ...environment, PATH: `${join(root, "usr/local/bin")}:/usr/bin:/bin` },
  };
  for (const name of ["packages", "application", "cpu"]) {
    // Each stage has the same paths, because the compile cache is keyed by paths.
    for (const path of ["app", "usr/local/bin", "usr/local/share", "var/cache/fovea", "var/lib/fovea"])
      await mkdir(join(root, path), { recursive: true });
    if (imageUser.uid !== undefined) await run("chown", ["-R", "65532:65532", join(root, "var")]);
    let user: typeof imageUser = {};
    for (const instruction of stages.get(name)?.instructions ?? []) {
      if (instruction.getKeyword() === "USER") user = textOf(instruction) === "root" ? {} : imageUser;
      else if (instruction.getKeyword() === "COPY") await copy(builder, instruction);
      else if (instruction.getKeyword() === "RUN")
        await carryOut(builder, instruction, { user, usesNpm: name === "packages" });
    }
    if (name !== "cpu") await rename(root, join(folder, name));
  }
  return builder;
}

interface Builder extends ImageFiles {
  readonly folder: string;
  readonly inRoot: (text: string) => string;
}

async function copy({ folder, root }: Builder, instruction: Instruction): Promise<void> {
  const { stage, sources, destination } = copyOf(instruction);
  const target = destination.startsWith("/") ? below(root, destination) : join(root, "app", destination);
  if (stage === null) return copyFromRepository(sources, target);
  for (const source of sources) {
    await mkdir(dirname(target), { recursive: true });
    // As links: stages share files, and none is changed in place.
    await run("cp", ["--archive", "--link", "--no-target-directory", below(join(folder, stage), source), target]);
  }
}

async function copyFromRepository(sources: readonly string[], target: string): Promise<void> {
  const { included, excluded } = await readContext();
  const isIncluded = (path: string): boolean => !excluded.some((pattern) => path === pattern);
  for (const path of included) {
    if (!sources.includes(".") && !sources.includes(path)) continue;
    const filter = (source: string): boolean => isIncluded(source.slice(repository.length));
    const copied = sources.includes(".") ? path : basename(path);
    await cp(join(repository, path), join(target, copied), { recursive: true, filter });
  }
}

async function carryOut(
  { root, environment, inRoot }: Builder,
  instruction: Instruction,
  { user, usesNpm }: { readonly user: typeof imageUser; readonly usesNpm: boolean },
): Promise<void> {
  // Only root can create files of other users.
  const command =
    imageUser.uid === undefined ? textOf(instruction).replace("-o 65532 -g 65532", "") : textOf(instruction);
  await run("sh", ["-euc", inRoot(command)], {
    cwd: join(root, "app"),
    env: usesNpm ? npmEnvironment() : environment,
    maxBuffer: 64 * 1024 ** 2,
    ...user,
  });
}

/** Throws for a path outside the image's own folders. */
function below(root: string, path: string): string {
  if (!imageFolders.test(path)) throw new Error(`The Containerfile names ${path}, which has no stand-in here.`);
  return join(root, path);
}
