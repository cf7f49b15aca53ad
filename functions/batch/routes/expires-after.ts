/** Wire schema of the lifetime of a file. */
import { z } from "zod";

/** OpenAI's range: an hour to 30 days. */
const MIN_SECONDS = 3600;
const MAX_SECONDS = 30 * 86_400;

/** @param numbers Of JSON, or read from the text of a form. */
export function expiresAfter(numbers: z.ZodType<number>) {
  const rule = `must be a whole number from ${MIN_SECONDS} to ${MAX_SECONDS}`;
  return z.object(
    {
      anchor: z.literal("created_at", "must be created_at"),
      seconds: numbers.refine((value) => Number.isInteger(value) && value >= MIN_SECONDS && value <= MAX_SECONDS, rule),
    },
    "must have the fields anchor and seconds",
  );
}
