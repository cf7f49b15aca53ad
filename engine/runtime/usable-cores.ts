/** The number of threads that computations should use on this machine. */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";

import type { EngineConfig } from "../contract/config.ts";
import { containerLimits } from "./container-limits.ts";

/**
 * The number of physical cores on which this process may run, within the quota of its container. Two hardware threads of
 * one core share its vector units, so the second one only adds contention to matrix products.
 */
export function numUsableCores(): number {
  return Math.min(numPhysicalCores(), numUsableCpus());
}

/** The number of hardware threads on which this process may run, within the quota of its container. */
export function numUsableCpus(): number {
  return wholeCpus(availableParallelism(), containerLimits().numCpus);
}

type ThreadSettings = Pick<EngineConfig, "numThreads" | "dataParallelSize">;

/** Of a run, also of one copy of several. */
export function numThreadsOf({ numThreads }: ThreadSettings): number {
  return numThreads ?? numUsableCores();
}

/** Of all copies together, at most the usable cores. */
export function numThreadsOfAll(settings: ThreadSettings): number {
  return Math.min(numUsableCores(), numThreadsOf(settings) * (settings.dataParallelSize ?? 1));
}

/** At least 1. Threads beyond the quota would spend it before the period ends, and all of them would stand still. */
export function wholeCpus(numAllowed: number, quota: number): number {
  return Math.max(1, Math.min(numAllowed, Math.floor(quota)));
}

function numPhysicalCores(): number {
  try {
    const status = readFileSync("/proc/self/status", "utf8");
    return countCores(/^Cpus_allowed_list:\s*(\S+)$/m.exec(status)?.[1] ?? "", "/sys/devices/system/cpu");
  } catch {
    // This is not Linux, or the container hides the topology.
    return availableParallelism();
  }
}

/**
 * @param allowed As in the kernel's lists: `0-3,8`.
 * @throws Error if the folder does not tell the topology of one of them.
 */
export function countCores(allowed: string, cpuFolder: string): number {
  const cores = new Set<string>();
  for (const range of allowed.split(",")) {
    const [first = Number.NaN, last = first] = range.split("-").map((text) => Number.parseInt(text, 10));
    for (let index = first; index <= last; index++) {
      // Sibling threads report the same list, so each core counts once.
      cores.add(readFileSync(`${cpuFolder}/cpu${index}/topology/thread_siblings_list`, "utf8"));
    }
  }
  if (cores.size === 0) throw new Error(`The list of allowed processors, "${allowed}", has none.`);
  return cores.size;
}
