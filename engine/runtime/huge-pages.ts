/**
 * Moves memory that is in use to pages of 2 MiB.
 *
 * A step reads all weights. In pages of 4 KiB, the processor looks up an address for every page, which takes twice as long
 * in a virtual machine, and it does not read ahead across a page. The C library asks for large pages only where the
 * environment of the process says so, and then for memory that stays nearly empty too.
 */
import { readFileSync } from "node:fs";
import { platform } from "node:os";
import koffi from "koffi";

const HUGE_PAGE_BYTES = 2 ** 21;
const PAGE_BYTES = 2 ** 12;
/** A block with more free pages would take visibly more memory than before. */
const MIN_SHARE_IN_USE = 0.95;
/** Linux from 6.1 on. It copies at once and leaves later memory alone. */
const MADV_COLLAPSE = 25;
/** After as many failures in a row, the system is taken to lack the call, or memory for it. */
const MAX_FAILURES = 3;
/** Of the time of steps, until all blocks are moved: what that costs is seen in no figure, and gained soon after. */
const SHARE_OF_STEPS = 0.02;

interface PageCalls {
  readonly madvise: (address: bigint, numBytes: number, advice: number) => number;
  /** Sets the lowest bit of a byte for each page that is in memory. */
  readonly mincore: (address: bigint, numBytes: number, pages: Uint8Array) => number;
}

/** Mutable: a list of blocks that are still to be moved. */
export class HugePages {
  readonly #calls: PageCalls | null;
  readonly #blocks: bigint[];
  #numFailures = 0;
  /** That steps have left for moving, in milliseconds. */
  #leftMs = 0;

  private constructor(calls: PageCalls | null, blocks: bigint[]) {
    this.#calls = calls;
    this.#blocks = blocks;
  }

  /**
   * Lists the blocks of 2 MiB that this process uses now, apart from mapped files. Takes a few milliseconds for each GiB.
   * The list is empty on systems other than Linux.
   *
   * @param earlier Blocks to leave out. Default: none.
   */
  static inUse(earlier?: HugePages): HugePages {
    const calls = findPageCalls();
    if (calls === null) return new HugePages(null, []);
    const known = new Set(earlier === undefined ? [] : earlier.#blocks);
    return new HugePages(
      calls,
      [...blocksInUse(calls)].filter((block) => !known.has(block)),
    );
  }

  get numBlocks(): number {
    return this.#blocks.length;
  }

  /** Moves the next block if the steps so far have left as much time. */
  moveBetweenSteps(stepMs: number): void {
    if (this.#blocks.length === 0) return;
    this.#leftMs += stepMs * SHARE_OF_STEPS;
    if (this.#leftMs < 0) return;
    const start = performance.now();
    this.moveNext();
    // Below 0 until later steps have made up for it.
    this.#leftMs -= performance.now() - start;
  }

  /**
   * Moves the next block, which takes 2 to 6 ms, and returns whether there was one. Its memory may have been freed or used
   * for something else in the meantime: the contents stay the same in any case. A block that the system does not move stays
   * as it is.
   */
  moveNext(): boolean {
    const block = this.#blocks.pop();
    if (block === undefined || this.#calls === null) return false;
    const isMoved = this.#calls.madvise(block, HUGE_PAGE_BYTES, MADV_COLLAPSE) === 0;
    this.#numFailures = isMoved ? 0 : this.#numFailures + 1;
    if (this.#numFailures === MAX_FAILURES) this.#blocks.length = 0;
    return true;
  }
}

function* blocksInUse({ mincore }: PageCalls): Generator<bigint> {
  const pages = new Uint8Array(HUGE_PAGE_BYTES / PAGE_BYTES);
  const blockBytes = BigInt(HUGE_PAGE_BYTES);
  for (const { start, end } of anonymousRanges()) {
    const first = ((start + blockBytes - 1n) / blockBytes) * blockBytes;
    for (let block = first; block + blockBytes <= end; block += blockBytes) {
      if (mincore(block, HUGE_PAGE_BYTES, pages) !== 0) continue;
      let numInUse = 0;
      for (const page of pages) numInUse += page & 1;
      if (numInUse >= MIN_SHARE_IN_USE * pages.length) yield block;
    }
  }
}

/** Private writable memory without a file. */
function anonymousRanges(): { readonly start: bigint; readonly end: bigint }[] {
  const pattern = /^(?<start>[0-9a-f]+)-(?<end>[0-9a-f]+) rw-p [0-9a-f]+ 00:00 0\s+(?:\[heap\]|\[anon.*)?$/gm;
  return Array.from(readFileSync("/proc/self/maps", "latin1").matchAll(pattern), ({ groups }) => ({
    start: BigInt(`0x${groups!.start}`),
    end: BigInt(`0x${groups!.end}`),
  }));
}

function findPageCalls(): PageCalls | null {
  if (platform() !== "linux") return null;
  try {
    const library = koffi.load(null);
    const pageBytes = library.func("getpagesize", "int", [])() as number;
    // With larger pages, as some ARM systems have, 2 MiB is not the size of the next larger ones.
    if (pageBytes !== PAGE_BYTES) return null;
    return {
      madvise: library.func("madvise", "int", ["void *", "size_t", "int"]),
      mincore: library.func("mincore", "int", ["void *", "size_t", "uint8_t *"]),
    };
  } catch {
    return null;
  }
}
