/** Ids of files and batches: nobody guesses them, and their order is that in which they were made. */
import { randomBytes } from "node:crypto";

const TIME_DIGITS = 12;
const RANDOM_BYTES = 16;

const prefixes = { file: "file-", batch: "batch_" } as const;
export type IdKind = keyof typeof prefixes;

export function createId(kind: IdKind, nowMs: number): string {
  return prefixes[kind] + nowMs.toString(16).padStart(TIME_DIGITS, "0") + randomBytes(RANDOM_BYTES).toString("hex");
}

/** Whether `text` looks like an id: any other is known to nobody, and is never looked for. */
export function isId(kind: IdKind, text: string): boolean {
  const digits = text.slice(prefixes[kind].length);
  return (
    text.startsWith(prefixes[kind]) && digits.length === TIME_DIGITS + 2 * RANDOM_BYTES && /^[0-9a-f]+$/.test(digits)
  );
}
