/**
 * Random ids and seeds that differ between copies of a process. A snapshot of memory holds the state of the random
 * generator and ids that it has drawn ahead, so all processes that are restored from it would draw the same ones.
 */
import { randomBytes } from "node:crypto";
import { closeSync, openSync, readSync } from "node:fs";

const NUM_BYTES = 16;
/** Seeds are safe integers. */
const SEED_BYTES = 6;

/** Combined with everything that is drawn. Zeros leave it as it is. */
const difference = Buffer.alloc(NUM_BYTES);

/** Call it in a process that was restored. Reads the kernel's generator, which is not part of the snapshot. */
export function renewRandomness(): void {
  const file = openSync("/dev/urandom", "r");
  try {
    readSync(file, difference, 0, NUM_BYTES, null);
  } finally {
    closeSync(file);
  }
}

/** A UUID of version 4. */
export function randomUuid(): string {
  const bytes = draw(NUM_BYTES);
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/** @param numBytes At most 16. */
export function randomHex(numBytes: number): string {
  return draw(numBytes).toString("hex");
}

/** From 0 up to, but not including, 2^48. */
export function randomSeed(): number {
  return draw(SEED_BYTES).readUIntBE(0, SEED_BYTES);
}

function draw(numBytes: number): Buffer {
  const bytes = randomBytes(numBytes);
  for (let index = 0; index < numBytes; index++) bytes[index]! ^= difference[index]!;
  return bytes;
}
