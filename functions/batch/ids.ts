/** Ids of files and batches: unguessable, and ordered by creation. */
import { randomHex } from "../../engine/index.ts";

const TIME_DIGITS = 12;
const RANDOM_BYTES = 16;

const prefixes = { file: "file-", batch: "batch_" } as const;
export type IdKind = keyof typeof prefixes;

export function createId(kind: IdKind, nowMs: number): string {
  return prefixes[kind] + nowMs.toString(16).padStart(TIME_DIGITS, "0") + randomHex(RANDOM_BYTES);
}

/** Creation time of an id that `isId` accepts: Unix time in milliseconds. */
export function createdAtMs(kind: IdKind, id: string): number {
  return Number.parseInt(id.slice(prefixes[kind].length, prefixes[kind].length + TIME_DIGITS), 16);
}

/** Whether `text` has the form of an id. Other texts name nothing and are never looked up. */
export function isId(kind: IdKind, text: string): boolean {
  const digits = text.slice(prefixes[kind].length);
  return (
    text.startsWith(prefixes[kind]) && digits.length === TIME_DIGITS + 2 * RANDOM_BYTES && /^[0-9a-f]+$/.test(digits)
  );
}
