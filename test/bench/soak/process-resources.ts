/** What the system says about another process: its memory by kind, its threads, and its open files by kind. */
import { readFile, readdir, readlink } from "node:fs/promises";

const KIBIBYTE = 1024;
/** TCP_ESTABLISHED of the kernel, as /proc writes it. */
const establishedState = "01";

export interface ProcessMemory {
  /** Heaps, stacks and other memory that no file stands behind. */
  readonly anonymousBytes: number;
  /** Touched pages of programs, libraries and weights that are mapped from files. The system can take them back. */
  readonly fileBytes: number;
  readonly sharedBytes: number;
  readonly numThreads: number;
}

export async function readProcessMemory(pid: number): Promise<ProcessMemory> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  const field = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)![1]);
  return {
    anonymousBytes: field("RssAnon") * KIBIBYTE,
    fileBytes: field("RssFile") * KIBIBYTE,
    sharedBytes: field("RssShmem") * KIBIBYTE,
    numThreads: field("Threads"),
  };
}

/** How many descriptors of each kind are open: `socket`, `pipe`, `anon_inode:[eventpoll]`, `file`. */
export async function countOpenFiles(pid: number): Promise<ReadonlyMap<string, number>> {
  const folder = `/proc/${pid}/fd`;
  const counts = new Map<string, number>();
  for (const name of await readdir(folder)) {
    // It was closed meanwhile.
    const target = await readlink(`${folder}/${name}`).catch(() => null);
    if (target === null) continue;
    const kind = target.startsWith("/") ? "file" : target.startsWith("anon_inode:") ? target : target.split(":")[0]!;
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  return counts;
}

/** Connections that others have opened to the port and not closed. */
export async function countConnections(pid: number, port: number): Promise<number> {
  const lines = (await readFile(`/proc/${pid}/net/tcp`, "utf8")).split("\n");
  const local = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  return lines.filter((line) => {
    const [, address, , state] = line.trim().split(/\s+/);
    return address?.endsWith(local) === true && state === establishedState;
  }).length;
}
