/** The seed of a run: the same cases each time unless another is asked for. */
import { randomInt } from "node:crypto";

const DEFAULT_SEED = 1;
const MAX_SEED = 2 ** 31 - 1;

/** `text` is a number, `new` for one that nobody has tried, or absent for the usual one. Throws where it is neither. */
export function readSeed(text: string | undefined): number {
  if (text === undefined || text === "") return DEFAULT_SEED;
  if (text === "new") return randomInt(MAX_SEED);
  const seed = Number(text);
  if (!Number.isInteger(seed) || seed < 0 || seed > MAX_SEED) {
    throw new Error(`The seed is ${JSON.stringify(text)}: expected "new" or a whole number from 0 to ${MAX_SEED}.`);
  }
  return seed;
}
