/** The seed of a run: the same cases each time by default. */
import { randomInt } from "node:crypto";

const DEFAULT_SEED = 1;
const MAX_SEED = 2 ** 31 - 1;

/** `text` is a number, `new` for a random one, or absent for the default. Throws for anything else. */
export function readSeed(text: string | undefined): number {
  if (text === undefined || text === "") return DEFAULT_SEED;
  if (text === "new") return randomInt(MAX_SEED);
  const seed = Number(text);
  if (!Number.isInteger(seed) || seed < 0 || seed > MAX_SEED) {
    throw new Error(`The seed is ${JSON.stringify(text)}: expected "new" or a whole number from 0 to ${MAX_SEED}.`);
  }
  return seed;
}
