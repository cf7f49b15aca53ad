/**
 * Types of wire fields, with messages that follow the name of the field. Every type bounds its length and checks it
 * before the elements. Rules abort, so that a list is checked only up to its first invalid element.
 */
import { z } from "zod";

export const finite = z.number({
  error: ({ input }) => (typeof input === "number" ? "must be a finite number" : "must be a number"),
});

/** Of any size: clients send 1e9 tokens and 64-bit seeds. */
export const wholeNumber = finite.refine(Number.isInteger, { error: "must be a whole number", abort: true });

export const count = wholeNumber.refine((value) => value >= 0, { error: "must be at least 0", abort: true });

const tokenId = wholeNumber.refine((id) => id >= 0, { error: "must be a token id, 0 or more", abort: true });

export const flag = z.boolean("must be true or false");

/** A prompt or a picture, bounded only by the body. */
export const text = z.string("must be a string");

/** For names and ids chosen by clients. */
export const MAX_NAME_LENGTH = 1024;

export const name = boundedText(MAX_NAME_LENGTH).min(1, "must not be empty");

/** Of presigned addresses. */
const MAX_ADDRESS_LENGTH = 8192;

/** The id of an uploaded file. LiteLLM puts addresses in its place. */
export const fileId = boundedText(MAX_ADDRESS_LENGTH).min(1, "must not be empty");

export function boundedText(maxLength: number) {
  return text.max(maxLength, { error: ({ input }) => tooMany("have", lengthOf(input), maxLength, "characters") });
}

export function boundedList<Element extends z.ZodType>(element: Element, maxLength: number, rule: string) {
  return z.array(element, rule).max(maxLength, { error: ({ input }) => tooManyEntries(lengthOf(input), maxLength) });
}

/**
 * A list of token ids. Zod's own lists take 0.2 µs per element, so a long prompt would block all other requests for a
 * fifth of a second. This one takes a few nanoseconds.
 */
export function tokenIdList(maxLength: number, rule: string) {
  const list = z.unknown().transform((value, context): readonly number[] => {
    if (!Array.isArray(value)) {
      context.addIssue({ code: "invalid_type", expected: "array", input: value, message: rule });
      return z.NEVER;
    }
    if (value.length > maxLength) {
      context.addIssue({ code: "custom", input: value, message: tooManyEntries(value.length, maxLength) });
      return z.NEVER;
    }
    const bad = value.findIndex((id) => !Number.isInteger(id) || id < 0);
    if (bad === -1) return value as number[];
    const message = tokenId.safeParse(value[bad]).error?.issues[0]?.message ?? "must be a token id";
    context.addIssue({ code: "custom", path: [bad], input: value[bad], message });
    return z.NEVER;
  });
  // The schema does not expose its elements to code that walks it.
  return list.meta({ elementOfList: tokenId });
}

/** An object with names chosen by the client, each up to `maxNameLength` characters. */
export function boundedRecord<Value extends z.ZodType>(
  value: Value,
  maxEntries: number,
  rule: string,
  maxNameLength = MAX_NAME_LENGTH,
) {
  return z
    .unknown()
    .superRefine((input, context) => {
      if (typeof input !== "object" || input === null) return;
      const names = Object.keys(input);
      // Records drop this name silently.
      if (names.includes("__proto__")) return addRefusal(context, ["__proto__"], "is not a name that can be set");
      if (names.length > maxEntries) return addRefusal(context, [], tooManyEntries(names.length, maxEntries));
      const longest = names.reduce((length, { length: other }) => Math.max(length, other), 0);
      if (longest <= maxNameLength) return;
      addRefusal(context, [], `has a name of ${longest} characters; the limit is ${maxNameLength}`);
    })
    .pipe(z.record(z.string(), value, rule));
}

/** JSON that is passed on unread. Its size is the number of its values plus the characters in its strings and names. */
export function boundedJson(maxSize: number) {
  return z.unknown().superRefine((value, context) => {
    if (isLarger(value, maxSize)) {
      addRefusal(context, [], `has more than ${maxSize} values and characters, which is the limit`);
    }
  });
}

/** Stops at `maxSize`. The parser bounds the depth of the recursion. */
function isLarger(value: unknown, maxSize: number): boolean {
  let size = 0;
  const add = (part: unknown): boolean => {
    size += typeof part === "string" ? part.length + 1 : 1;
    if (size > maxSize) return true;
    if (typeof part !== "object" || part === null) return false;
    if (Array.isArray(part)) return part.length > maxSize || part.some(add);
    return Object.entries(part).some(([key, member]) => add(key) || add(member));
  };
  return add(value);
}

export function addIssue(context: z.RefinementCtx, field: string, message: string): void {
  context.addIssue({ code: "custom", path: [field], message });
}

/** Rejects the value without further checks. */
function addRefusal(context: z.RefinementCtx, path: string[], message: string): void {
  context.addIssue({ code: "custom", path, message, continue: false });
}

function tooManyEntries(found: number, maxLength: number): string {
  return tooMany("hold", found, maxLength, "entries");
}

function tooMany(verb: string, found: number, max: number, units: string): string {
  return `can ${verb} at most ${max} ${units}, not ${found}`;
}

function lengthOf(input: unknown): number {
  return typeof input === "string" || Array.isArray(input) ? input.length : 0;
}
