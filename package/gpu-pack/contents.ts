/** What goes into the archives: staged as links, in the layout that they have on the other machine. */
import { copyFileSync, globSync, linkSync, mkdirSync, rmSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";

import { installedPackages } from "./installed-packages.ts";
import type { WheelLibrary } from "./wheels.ts";

/** Beside the production dependencies: what the experiments and the device suites of the tests run with. */
const testPackages = ["vitest", "fast-check"];

/** Files that no program reads at run time. */
const droppedFiles = /\.(d\.ts|d\.mts|d\.cts|map|md|markdown|flow)$/i;

const providerLibraries = ["libonnxruntime_providers_cuda.so", "libonnxruntime_providers_shared.so"];
const nativeFolder = "node_modules/onnxruntime-node/bin/napi-v6/linux/x64";

/** The wheel of the provider, and those of NVIDIA's libraries. cuDNN is for convolutions only, and large. */
export const providerWheel = "onnxruntime-gpu";
export const cudaWheels = ["nvidia-cublas", "nvidia-cuda-runtime", "nvidia-curand", "nvidia-cuda-nvrtc"];
export const cudnnWheel = "nvidia-cudnn-cu13";

/** Sources, which Node runs unbuilt, the tests and the packages that they need. */
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
  const packages = installedPackages(repository, testPackages).filter((path) => !path.includes("node-linux-"));
  const files = packages.flatMap((path) => globSync(`${path}/**/*`, { cwd: repository, exclude: isForeign }));
  for (const path of [...sources, ...files.filter((file) => !droppedFiles.test(file))]) {
    link(join(repository, path), join(staging, path));
  }
}

/** Libraries of other platforms. */
function isForeign(path: string): boolean {
  return /napi-v6\/(darwin|win32|linux\/arm64)/.test(path);
}

export function stageProvider(libraries: readonly WheelLibrary[], staging: string): void {
  for (const name of providerLibraries) {
    const library = libraries.find(({ path }) => basename(path) === name);
    if (library === undefined) throw new Error(`The wheel ${providerWheel} has no ${name}.`);
    link(library.path, join(staging, nativeFolder, name));
  }
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
