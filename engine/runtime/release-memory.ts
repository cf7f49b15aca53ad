/** Gives memory that only loading needed back to the system. */
import { readFileSync } from "node:fs";
import { platform } from "node:os";
import koffi from "koffi";

const madviseDontNeed = 4;

/**
 * For the whole process, to be called once its sessions are loaded. Gives back
 * - blocks that were freed and that the C library keeps for the threads that allocated them;
 * - the pages of files that nothing has written to: code of parsers and graph optimisers, and stored weights of which
 *   kernels have made a copy in a layout of their own. They stay in the system's cache of files, and those still needed
 *   are mapped again when they are next touched, which takes a few milliseconds in all.
 *
 * Does nothing but on Linux, and leaves out what the C library lacks or the system hides.
 */
export function releaseLoadingMemory(): void {
  if (platform() !== "linux") return;
  nativeFunction("malloc_trim", ["size_t"])?.(0);
  const madvise = nativeFunction("madvise", ["void *", "size_t", "int"]);
  if (madvise === null) return;
  for (const { address, numBytes } of cleanFileMappings()) madvise(address, numBytes, madviseDontNeed);
}

/** Null where the C library has no such function. */
function nativeFunction(name: string, parameters: string[]): ((...values: unknown[]) => number) | null {
  try {
    return koffi.load(null).func(name, "int", parameters);
  } catch {
    return null;
  }
}

interface Mapping {
  readonly address: bigint;
  readonly numBytes: number;
}

/**
 * An entry of /proc/self/smaps: a private mapping of a file that is not writable and has no page of its own. One that is
 * not writable any more may have been, as tables of addresses are until they are relocated: those pages exist nowhere
 * else.
 */
const cleanFileMapping = /^([0-9a-f]+)-([0-9a-f]+) r-[-x]p [0-9a-f]+ \S+ \d+ +\/.*\n(?:\w+: .*\n)*?Anonymous: +0 kB$/gm;

function cleanFileMappings(): Mapping[] {
  return [...readSmaps().matchAll(cleanFileMapping)].map(([, start, end]) => {
    const address = BigInt(`0x${start}`);
    return { address, numBytes: Number(BigInt(`0x${end}`) - address) };
  });
}

function readSmaps(): string {
  try {
    return readFileSync("/proc/self/smaps", "utf8");
  } catch {
    return "";
  }
}
