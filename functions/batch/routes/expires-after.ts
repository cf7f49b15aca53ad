/** Wire schema of the lifetime of a file. */
import { z } from "zod";

/** OpenAI's range: an hour to 30 days. */
const MIN_SECONDS = 3600;
const MAX_SECONDS = 30 * 86_400;

export const lifetimeRule = `must be a whole number from ${MIN_SECONDS} to ${MAX_SECONDS}`;

export function isLifetime(seconds: number): boolean {
  return Number.isInteger(seconds) && seconds >= MIN_SECONDS && seconds <= MAX_SECONDS;
}

/** @param numbers Of JSON, or read from the text of a form. */
export function expiresAfter(numbers: z.ZodType<number>) {
  return z.object(
    {
      anchor: z.literal("created_at", "must be created_at"),
      seconds: numbers.refine(isLifetime, lifetimeRule),
    },
    "must have the fields anchor and seconds",
  );
}
