import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";

import { readContainerLimits } from "../../../engine/runtime/container-limits.ts";
import type { ContainerLimits } from "../../../engine/runtime/container-limits.ts";
import { countCores, wholeCpus } from "../../../engine/runtime/usable-cores.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

interface Surroundings {
  readonly title: string;
  /** As in /proc/self/mountinfo, without the numbers; `%` is the folder of the test. */
  readonly mounts: readonly string[];
  /** As in /proc/self/cgroup. */
  readonly groups: readonly string[];
  readonly files: Readonly<Record<string, string>>;
  readonly limits: ContainerLimits;
}

const none = Number.POSITIVE_INFINITY;
const version2 = "/ %/cgroup rw,nosuid shared:9 - cgroup2 cgroup rw,nsdelegate";
const GIBIBYTE = 2 ** 30;

const surroundings: readonly Surroundings[] = [
  {
    title: "a container with a namespace of its own, version 2",
    mounts: ["/ / rw - overlay overlay rw,lowerdir=/a", version2],
    groups: ["0::/"],
    files: { "cgroup/memory.max": "1073741824\n", "cgroup/memory.high": "max\n", "cgroup/cpu.max": "150000 100000\n" },
    limits: { memoryBytes: GIBIBYTE, numCpus: 1.5 },
  },
  {
    title: "limits of the groups around the process's own, version 2",
    mounts: [version2],
    groups: ["0::/pod/container/init"],
    files: {
      "cgroup/pod/memory.max": "2147483648\n",
      "cgroup/pod/cpu.max": "400000 100000\n",
      "cgroup/pod/container/memory.max": "4294967296\n",
      "cgroup/pod/container/cpu.max": "50000 100000\n",
      "cgroup/pod/container/init/memory.max": "max\n",
      "cgroup/pod/container/init/cpu.max": "max 100000\n",
      "cgroup/other/memory.max": "1\n",
    },
    limits: { memoryBytes: 2 * GIBIBYTE, numCpus: 0.5 },
  },
  {
    title: "a limit above which the kernel slows the process down, version 2",
    mounts: [version2],
    groups: ["0::/"],
    files: { "cgroup/memory.max": "max\n", "cgroup/memory.high": "1073741824\n" },
    limits: { memoryBytes: GIBIBYTE, numCpus: none },
  },
  {
    title: "a container whose mounts show its own groups, version 1",
    mounts: [
      "/docker/ab %/memory ro - cgroup cgroup rw,memory",
      "/docker/ab %/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct",
      "/docker/ab %/cpuset ro - cgroup cgroup rw,cpuset",
    ],
    groups: ["9:memory:/docker/ab", "4:cpu,cpuacct:/docker/ab", "3:cpuset:/docker/ab", "0::/docker/ab"],
    files: {
      "memory/memory.limit_in_bytes": "1073741824\n",
      "cpu,cpuacct/cpu.cfs_quota_us": "350000\n",
      "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    },
    limits: { memoryBytes: GIBIBYTE, numCpus: 3.5 },
  },
  {
    title: "version 1 beside an empty version 2",
    mounts: [
      "/ %/memory rw - cgroup cgroup rw,memory",
      "/ %/cpu rw - cgroup cgroup rw,cpu",
      "/ %/unified rw - cgroup2 cgroup2 rw",
    ],
    groups: ["9:memory:/service", "4:cpu:/", "0::/"],
    files: {
      "memory/memory.limit_in_bytes": "9223372036854771712\n",
      "memory/service/memory.limit_in_bytes": "1073741824\n",
      "cpu/cpu.cfs_quota_us": "-1\n",
      "cpu/cpu.cfs_period_us": "100000\n",
    },
    limits: { memoryBytes: GIBIBYTE, numCpus: none },
  },
  {
    title: "a group outside of the mount",
    mounts: ["/docker/ab %/cgroup ro - cgroup2 cgroup rw"],
    groups: ["0::/docker/cd"],
    files: { "cgroup/memory.max": "1073741824\n" },
    limits: { memoryBytes: GIBIBYTE, numCpus: none },
  },
  { title: "no groups", mounts: [], groups: [], files: {}, limits: { memoryBytes: none, numCpus: none } },
];

test.for(surroundings)("finds the limits of $title", async ({ mounts, groups, files, limits }) => {
  await using folder = await createTemporaryFolder();
  const mountinfo = mounts
    .map((mount, index) => `${20 + index} 1 0:3 ${mount.replaceAll("%", folder.path)}\n`)
    .join("");
  const written = {
    ...files,
    "process/mountinfo": mountinfo,
    "process/cgroup": groups.map((line) => `${line}\n`).join(""),
  };
  for (const [name, text] of Object.entries(written)) {
    const path = join(folder.path, name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
  }
  expect(readContainerLimits(join(folder.path, "process"))).toEqual(limits);
});

test("counts a core once whose hardware threads are both allowed, and no core that is not allowed", async () => {
  await using folder = await createTemporaryFolder();
  for (let index = 0; index < 8; index++) {
    const topology = join(folder.path, `cpu${index}/topology`);
    await mkdir(topology, { recursive: true });
    await writeFile(join(topology, "thread_siblings_list"), `${index % 4},${(index % 4) + 4}\n`);
  }
  expect(countCores("0-7", folder.path)).toBe(4);
  expect(countCores("1,5", folder.path)).toBe(1);
  expect(countCores("0-1,3,7", folder.path)).toBe(3);
  expect(() => countCores("8", folder.path)).toThrow("ENOENT");
  expect(() => countCores("", folder.path)).toThrow("none");
});

test.for([
  { numAllowed: 64, quota: 0.5, threads: 1 },
  { numAllowed: 64, quota: 1.5, threads: 1 },
  { numAllowed: 64, quota: 4, threads: 4 },
  { numAllowed: 2, quota: 4, threads: 2 },
  { numAllowed: 2, quota: none, threads: 2 },
])("gives $threads threads to $numAllowed processors with a quota of $quota", ({ numAllowed, quota, threads }) => {
  expect(wholeCpus(numAllowed, quota)).toBe(threads);
});
