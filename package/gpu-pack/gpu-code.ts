/**
 * Leaves the machine code of other GPUs out of a library of CUDA: two thirds of the provider's. What is kept moves to the
 * start of its container, whose size is corrected; the rest becomes zeros, which compress to nothing. Containers stay
 * where they are, because the library has their addresses.
 *
 * The driver loads code for the device's major version, or compiles PTX, which stays. Layout of the section
 * `.nv_fatbin` as in 13.0: containers with a header of 16 bytes (magic number, version, size of the header, size of the
 * content), each with entries (kind, size of the header, size of the content; at byte 28 the architecture).
 */
import { invariant } from "../../engine/contract/errors.ts";

const CONTAINER_MAGIC = 0xba55ed50;
const KIND_MACHINE_CODE = 2;
const sectionName = ".nv_fatbin";

export interface KeptCode {
  readonly keptBytes: number;
  readonly clearedBytes: number;
}

/**
 * Changes `library` in place.
 *
 * @param architecture Such as 90, for compute capability 9.0.
 * @throws Error if the library has no machine code for it, or is not as described.
 */
export function keepGpuCode(library: Buffer, architecture: number): KeptCode {
  const { start, end } = findSection(library, sectionName);
  let keptBytes = 0;
  let clearedBytes = 0;
  let hasCode = false;
  for (let place = start; place + 16 <= end;) {
    if (library.readUInt32LE(place) !== CONTAINER_MAGIC) {
      // Containers begin at multiples of 8.
      place += 8;
      continue;
    }
    const first = place + library.readUInt16LE(place + 6);
    const containerEnd = first + Number(library.readBigUInt64LE(place + 8));
    if (containerEnd > end) throw new Error(`A container at byte ${place} of ${sectionName} reaches beyond it.`);
    const entries = readEntries(library, first, containerEnd);
    const kept = entries.filter(({ code }) => code === null || code === architecture);
    hasCode ||= kept.some(({ code }) => code !== null);
    // A container for other GPUs alone stays as it is: one without entries is none that CUDA's compiler makes.
    const keptEnd = kept.length === 0 ? containerEnd : keepEntries(library, first, kept);
    library.fill(0, keptEnd, containerEnd);
    library.writeBigUInt64LE(BigInt(keptEnd - first), place + 8);
    keptBytes += keptEnd - first;
    clearedBytes += containerEnd - keptEnd;
    place = containerEnd;
  }
  if (!hasCode) throw new Error(`The library has no machine code for architecture ${architecture}.`);
  return { keptBytes, clearedBytes };
}

interface Entry {
  readonly start: number;
  readonly end: number;
  /** Architecture of its machine code; null for PTX. */
  readonly code: number | null;
}

function readEntries(library: Buffer, first: number, containerEnd: number): Entry[] {
  const entries: Entry[] = [];
  for (let start = first; start < containerEnd;) {
    const content = start + library.readUInt32LE(start + 4);
    const end = content + Number(library.readBigUInt64LE(start + 8));
    if (content <= start || end > containerEnd) {
      throw new Error(`An entry at byte ${start} reaches beyond its container.`);
    }
    const isCode = library.readUInt16LE(start) === KIND_MACHINE_CODE;
    entries.push({ start, end, code: isCode ? library.readUInt32LE(start + 28) : null });
    start = end;
  }
  return entries;
}

/** Moves the entries to the start of their container; returns where they end. */
function keepEntries(library: Buffer, first: number, kept: readonly Entry[]): number {
  let place = first;
  for (const { start, end } of kept) {
    library.copyWithin(place, start, end);
    place += end - start;
  }
  return place;
}

/** Offsets in an ELF file of 64 bits. */
function findSection(file: Buffer, wanted: string): { readonly start: number; readonly end: number } {
  invariant(file.readUInt32BE(0) === 0x7f454c46, "not an ELF file");
  const table = Number(file.readBigUInt64LE(0x28));
  const entrySize = file.readUInt16LE(0x3a);
  const count = file.readUInt16LE(0x3c);
  const header = (index: number): number => table + index * entrySize;
  const offsetOf = (index: number): number => Number(file.readBigUInt64LE(header(index) + 24));
  const names = offsetOf(file.readUInt16LE(0x3e));
  for (let index = 0; index < count; index++) {
    const nameStart = names + file.readUInt32LE(header(index));
    const name = file.toString("latin1", nameStart, file.indexOf(0, nameStart));
    if (name !== wanted) continue;
    const start = offsetOf(index);
    return { start, end: start + Number(file.readBigUInt64LE(header(index) + 32)) };
  }
  throw new Error(`The library has no section ${wanted}.`);
}
