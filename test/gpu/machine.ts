/** The machine that a report is about. */
import { execFileSync } from "node:child_process";
import { cpus, totalmem } from "node:os";

export interface Gpu {
  readonly name: string;
  readonly driver: string;
  readonly memoryMiB: number;
  readonly computeCapability: string;
}

export interface Machine {
  readonly processor: string;
  readonly numCores: number;
  readonly memoryGiB: number;
  readonly node: string;
  /** Empty where `nvidia-smi` is not there, or finds none. */
  readonly gpus: readonly Gpu[];
  readonly at: string;
}

export function describeMachine(): Machine {
  return {
    processor: cpus()[0]?.model.trim() ?? "unknown",
    numCores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.version,
    gpus: listGpus(),
    at: new Date().toISOString(),
  };
}

function listGpus(): Gpu[] {
  try {
    const query = "--query-gpu=name,driver_version,memory.total,compute_cap";
    const rows = execFileSync("nvidia-smi", [query, "--format=csv,noheader,nounits"], { encoding: "utf8" });
    return rows
      .trim()
      .split("\n")
      .map((row) => {
        const [name, driver, memory, computeCapability] = row.split(",").map((field) => field.trim());
        return { name: name!, driver: driver!, memoryMiB: Number(memory), computeCapability: computeCapability! };
      });
  } catch {
    return [];
  }
}
