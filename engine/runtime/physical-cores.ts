/** The number of threads that one ONNX Runtime call should use on this machine. */
import { readFileSync } from "node:fs";
import { availableParallelism, cpus } from "node:os";

/**
 * The number of physical cores that the operating system and the container's quota allow. Two hardware threads of one
 * core share its vector units, so the second one only adds contention to matrix products.
 */
export function numUsableCores(): number {
  return Math.max(1, Math.min(numPhysicalCores(), availableParallelism()));
}

function numPhysicalCores(): number {
  const numLogical = cpus().length;
  const cores = new Set<string>();
  for (let index = 0; index < numLogical; index++) {
    try {
      // Sibling threads report the same list, so each core counts once.
      cores.add(readFileSync(`/sys/devices/system/cpu/cpu${index}/topology/thread_siblings_list`, "utf8"));
    } catch {
      // This is not Linux, or the container hides the topology.
      return availableParallelism();
    }
  }
  return cores.size;
}
