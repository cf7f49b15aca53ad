/** What goes into the archives: staged as links, in the layout that they have on the other machine. */
import { copyFileSync, globSync, linkSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";

import { keepGpuCode } from "./gpu-code.ts";
import type { KeptCode } from "./gpu-code.ts";
import { installedPackages } from "./installed-packages.ts";
import type { WheelLibrary } from "./wheels.ts";

/** Beside the production dependencies: what the experiments and the device suites of the tests run with. */
const testPackages = ["vitest", "fast-check"];

/** Files that no program reads at run time. */
const droppedFiles = /\.(d\.ts|d\.mts|d\.cts|map|md|markdown|flow)$/i;

const providerLibraries = ["libonnxruntime_providers_cuda.so", "libonnxruntime_providers_shared.so"];
const nativeFolder = "node_modules/onnxruntime-node/bin/napi-v6/linux/x64";

/** The wheel of the provider, and those of NVIDIA's libraries. cuDNN is for vision encoders only, and large. */
export const providerWheel = "onnxruntime-gpu";
export const cudaWheels = ["nvidia-cublas", "nvidia-cuda-runtime", "nvidia-curand", "nvidia-cuda-nvrtc"];
export const cudnnWheel = "nvidia-cudnn-cu13";

/** Sources, which Node runs unbuilt, and the tests. */
export function stageCode(repository: string, staging: string): void {
  const sources = globSync(
    [
      "{engine,functions,infra,models}/**/*",
      "test/**/*",
      "container/*.{txt,ts,js}",
      "docs/*.md",
      "*.json",
      "*.config.ts",
    ],
    { cwd: repository, exclude: (path) => /^test\/bench\/peers|^test\/attacks|node_modules/.test(path) },
  );
  for (const path of sources) link(join(repository, path), join(staging, path));
}

/** The packages of production. */
export function stagePackages(repository: string, staging: string): void {
  stageInstalled(repository, staging, installedPackages(repository, []));
}

/** Stages the packages that the device suites of the tests need. */
export function stageTestPackages(repository: string, staging: string): void {
  const production = new Set(installedPackages(repository, []));
  stageInstalled(
    repository,
    staging,
    installedPackages(repository, testPackages).filter((path) => !production.has(path)),
  );
}

function stageInstalled(repository: string, staging: string, packages: readonly string[]): void {
  const files = packages
    // Node has a part of its own, and no experiment decodes videos, for which FFmpeg would be 62 MiB of the pack.
    .filter((path) => !path.includes("node-linux-") && !path.includes("@seydx/"))
    .flatMap((path) => globSync(`${path}/**/*`, { cwd: repository, exclude: isForeign }));
  for (const path of files.filter((file) => !droppedFiles.test(file))) {
    link(join(repository, path), join(staging, path));
  }
}

/** Libraries of other platforms. */
function isForeign(path: string): boolean {
  return /napi-v6\/(darwin|win32|linux\/arm64)/.test(path);
}

/** @param architecture Of the GPU whose machine code is kept, such as 90; null keeps that of all. */
export function stageProvider(
  libraries: readonly WheelLibrary[],
  staging: string,
  architecture: number | null,
): KeptCode | null {
  for (const name of providerLibraries) {
    const library = libraries.find(({ path }) => basename(path) === name);
    if (library === undefined) throw new Error(`The wheel ${providerWheel} has no ${name}.`);
    link(library.path, join(staging, nativeFolder, name));
  }
  if (architecture === null) return null;
  const path = join(staging, nativeFolder, providerLibraries[0]!);
  const bytes = readFileSync(path);
  const kept = keepGpuCode(bytes, architecture);
  // The staged file is a link to the wheel's.
  rmSync(path);
  writeFileSync(path, bytes);
  return kept;
}

export function stageCuda(libraries: readonly WheelLibrary[], staging: string): void {
  for (const { path } of libraries) link(path, join(staging, "cuda/lib", basename(path)));
}

export function emptyFolder(folder: string): string {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  return folder;
}

function link(source: string, target: string): void {
  if (!statSync(source).isFile()) return;
  mkdirSync(dirname(target), { recursive: true });
  try {
    linkSync(source, target);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return;
    // Another file system, or one without links.
    copyFileSync(source, target);
  }
}
