/** Gives memory that only loading needed back to the system. */
import { readFileSync, readlinkSync, realpathSync } from "node:fs";
import { platform } from "node:os";
import koffi from "koffi";
import { nativeFolder } from "./ort-api.ts";

const madviseDontNeed = 4;

/**
 * For the whole process, to be called once its sessions are loaded. Gives back
 * - blocks that were freed and that the C library keeps for the threads that allocated them;
 * - code and constants of the program and of ONNX Runtime, most of which only loading uses: parsers, graph optimisers.
 *   They stay in the system's cache of files, and what is still needed is mapped again when it is next touched, which
 *   takes a few milliseconds in all.
 *
 * Does nothing but on Linux, and leaves out what the C library lacks or the system hides.
 */
export function releaseLoadingMemory(): void {
  if (platform() !== "linux") return;
  nativeFunction("malloc_trim", ["size_t"])?.(0);
  const madvise = nativeFunction("madvise", ["void *", "size_t", "int"]);
  if (madvise === null) return;
  for (const { address, numBytes } of codeMappings()) madvise(address, numBytes, madviseDontNeed);
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
const cleanFileMapping =
  /^([0-9a-f]+)-([0-9a-f]+) r-[-x]p [0-9a-f]+ \S+ \d+ +(\/.*)\n(?:\w+: .*\n)*?Anonymous: +0 kB$/gm;

/**
 * Only files that stay mapped until the process ends: the addresses of any other could belong to something else by the
 * time the system is told that their contents are not needed.
 */
function codeMappings(): Mapping[] {
  try {
    const smaps = readFileSync("/proc/self/smaps", "utf8");
    const mappedForGood = [readlinkSync("/proc/self/exe"), realpathSync(nativeFolder())];
    return [...smaps.matchAll(cleanFileMapping)]
      .filter(([, , , path]) => mappedForGood.some((prefix) => path.startsWith(prefix)))
      .map(([, start, end]) => {
        const address = BigInt(`0x${start}`);
        return { address, numBytes: Number(BigInt(`0x${end}`) - address) };
      });
  } catch {
    return [];
  }
}
