/** Types of wire fields, with messages that follow the name of the field. */
import { z } from "zod";

export const finite = z.number({
  error: ({ input }) => (typeof input === "number" ? "must be a finite number" : "must be a number"),
});

/** Of any size: clients send 1e9 tokens and 64-bit seeds. */
export const wholeNumber = finite.refine(Number.isInteger, "must be a whole number");

export const count = wholeNumber.refine((value) => value >= 0, "must be at least 0");

export const tokenId = wholeNumber.refine((id) => id >= 0, "must be a token id, 0 or more");

export const flag = z.boolean("must be true or false");

export function addIssue(context: z.RefinementCtx, field: string, message: string): void {
  context.addIssue({ code: "custom", path: [field], message });
}
