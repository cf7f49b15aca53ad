/** Checks the shape of logits processors given to `createEngine`: programs in JavaScript can give anything. */
import { z } from "zod";

import type { LogitsProcessorReference } from "../../contract/config.ts";
import { EngineError } from "../../contract/errors.ts";
import { describeError } from "../../excerpt.ts";
import { describeProblem, readBySchema } from "../../schema-problem.ts";
import { LogitsProcessor } from "../contract/logits-processor.ts";

/** A name `module:Export`, alone or with options. */
export type GivenReference =
  | string
  | (Omit<LogitsProcessorReference, "options"> & Partial<Pick<LogitsProcessorReference, "options">>);

const options = z.looseObject({}).optional();

const expectedNames =
  'a name such as "steering:TargetToken" or { className, options }. Classes go into the second argument of createEngine: createEngine({}, { logitsProcessors: [TargetToken] })';
const expectedClasses =
  'a class or { class, options }. Names go into the first argument of createEngine: createEngine({ logitsProcessors: ["steering:TargetToken"] })';

/** For `logitsProcessors` among the options of `createEngine`. */
export const givenReferences = z.array(
  z.union(
    [z.string(), z.looseObject({ className: z.string(), name: z.string().optional(), options }, expectedNames)],
    expectedNames,
  ),
  `a list, each element ${expectedNames}`,
);

/** @throws EngineError `invalid_configuration` for options that cannot be copied to the engine thread. */
export function toReference(given: GivenReference, index: number): LogitsProcessorReference {
  if (typeof given === "string") return { className: given, options: {} };
  const reference = { ...given, options: given.options ?? {} };
  requireCloneable(reference.options, `The option logitsProcessors[${index}].options`);
  return reference;
}

const givenClass = z.custom((value) => typeof value === "function", "a class");

const givenClasses = z.array(
  z.union([givenClass, z.looseObject({ class: givenClass, options }, expectedClasses)], expectedClasses),
  `a list, each element ${expectedClasses}`,
);

/**
 * For `logitsProcessors` in the second argument of `createEngine`. Does not look at the classes.
 *
 * @throws EngineError `invalid_configuration` that says which element is wrong, and what is expected.
 */
export function checkGivenClasses(given: unknown): void {
  const subject = "In the second argument of createEngine, ";
  const result = readBySchema(givenClasses, given);
  if (!result.isValid) {
    const instance = Array.isArray(given) ? given.findIndex((entry) => entry instanceof LogitsProcessor) : -1;
    const problem =
      instance === -1
        ? describeProblem(result, "logitsProcessors")
        : `logitsProcessors[${instance}] is an instance of a class; expected the class, which the engine thread constructs`;
    throw new EngineError("invalid_configuration", `${subject}${problem}.`);
  }
  for (const [index, entry] of result.value.entries()) {
    if (typeof entry !== "object" || entry === null || !("options" in entry)) continue;
    requireCloneable(entry.options, `${subject}logitsProcessors[${index}].options`);
  }
}

function requireCloneable(value: unknown, subject: string): void {
  try {
    structuredClone(value);
  } catch (cause) {
    throw new EngineError(
      "invalid_configuration",
      `${subject} cannot be copied to the engine thread: ${describeError(cause).replace(/\.$/, "")}; expected data without functions.`,
      { cause },
    );
  }
}
