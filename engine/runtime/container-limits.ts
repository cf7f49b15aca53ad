/**
 * The memory and the processors that control groups allow this process. Node and libuv do not know all limits: in
 * version 2, they read those of the process's own group only; in version 1, they read no quota of processors.
 */
import { readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

export interface ContainerLimits {
  /** Infinity without a limit. */
  readonly memoryBytes: number;
  /** Time of processors: 1.5 is that of one and a half. Infinity without a quota. */
  readonly numCpus: number;
}

/** The controllers of version 1 that have limits of ours, and version 2, which has one hierarchy for all. */
type Controller = "memory" | "cpu" | "version 2";

const readLimits: Readonly<Record<Controller, (folder: string) => Partial<ContainerLimits>>> = {
  // Without a limit, the largest number of pages.
  memory: (folder) => ({ memoryBytes: firstNumber(join(folder, "memory.limit_in_bytes")) }),
  cpu: (folder) => ({
    numCpus: quotient(firstNumber(join(folder, "cpu.cfs_quota_us")), firstNumber(join(folder, "cpu.cfs_period_us"))),
  }),
  "version 2": (folder) => {
    const [quota = "", period = ""] = (lines(join(folder, "cpu.max"))[0] ?? "").split(" ");
    return {
      memoryBytes: Math.min(firstNumber(join(folder, "memory.max")), firstNumber(join(folder, "memory.high"))),
      numCpus: quotient(Number(quota), Number(period)),
    };
  },
};

let known: ContainerLimits | null = null;

/** Read once: a start asks often. */
export function containerLimits(): ContainerLimits {
  return (known ??= readContainerLimits("/proc/self"));
}

/**
 * The smallest limits of the process's groups and of those around them, in both versions of control groups. Limits that
 * cannot be read count as none: elsewhere than on Linux, there are no such files.
 *
 * @param processFolder The process's folder in /proc.
 */
export function readContainerLimits(processFolder: string): ContainerLimits {
  const mounts = lines(join(processFolder, "mountinfo")).flatMap(parseMount);
  const groups = lines(join(processFolder, "cgroup")).map((line) => line.split(":"));
  let memoryBytes = Number.POSITIVE_INFINITY;
  let numCpus = Number.POSITIVE_INFINITY;
  for (const { folder, root, controller } of mounts) {
    // A line of `cgroup` is "number:controllers:path", without controllers for version 2.
    const name = controller === "version 2" ? "" : controller;
    const path =
      groups
        .find(([, names = ""]) => names.split(",").includes(name))
        ?.slice(2)
        .join(":") ?? "/";
    for (const group of foldersUpTo(folder, relative(root, path))) {
      const limits = readLimits[controller](group);
      memoryBytes = Math.min(memoryBytes, limits.memoryBytes ?? memoryBytes);
      numCpus = Math.min(numCpus, limits.numCpus ?? numCpus);
    }
  }
  return { memoryBytes, numCpus };
}

interface Mount {
  readonly folder: string;
  /** The group that is mounted there: in a container, often the process's own. */
  readonly root: string;
  readonly controller: Controller;
}

/** A line is "id parent device root folder options [tags] - type source superOptions". */
function parseMount(line: string): Mount[] {
  const [mount = "", fileSystem = ""] = line.split(" - ");
  const [, , , root = "/", folder = ""] = mount.split(" ");
  const [type, , options = ""] = fileSystem.split(" ");
  if (type === "cgroup2") return [{ folder, root, controller: "version 2" }];
  if (type !== "cgroup") return [];
  const names = options.split(",");
  return (["memory", "cpu"] as const)
    .filter((name) => names.includes(name))
    .map((controller) => ({ folder, root, controller }));
}

/** The group's folder and those of the groups around it; only the mount's if the group is outside of that. */
function foldersUpTo(mount: string, groupPath: string): string[] {
  const folders = [mount];
  if (groupPath.startsWith("..")) return folders;
  for (let path = groupPath; path !== "" && path !== "."; path = dirname(path)) folders.push(join(mount, path));
  return folders;
}

/** Infinity without a quota, which is "max" in version 2 and -1 in version 1. */
function quotient(quota: number, period: number): number {
  const numCpus = quota / period;
  return numCpus > 0 ? numCpus : Number.POSITIVE_INFINITY;
}

/** Infinity if there is none, or if it is "max". */
function firstNumber(path: string): number {
  const number = Number.parseInt(lines(path)[0] ?? "", 10);
  return Number.isNaN(number) ? Number.POSITIVE_INFINITY : number;
}

/** Empty if the file cannot be read. */
function lines(path: string): string[] {
  try {
    return readFileSync(path, "utf8").trimEnd().split("\n");
  } catch {
    return [];
  }
}
