/** The texts of patterns with lookaheads and word boundaries. */
import { readAssertionPattern } from "./assertion-pattern.ts";
import { automatonLanguage } from "./automaton-language.ts";
import type { Expression } from "./expression.ts";
import type { CountBounds } from "./json-bounds.ts";
import { automatonOf } from "./pattern-automaton.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { WorkMeter } from "./work-meter.ts";

/** Maximum number of characters of a pattern with lookaheads: each state may have a way for each. */
const MAX_CHARACTERS = 4000;
/** Work for all patterns with lookaheads of a form: about a tenth of a second. */
const MAX_UNITS = 400_000;

/** Counts the work of all patterns with lookaheads of one form. */
export function createAssertionMeter(): WorkMeter {
  const meter = new WorkMeter();
  meter.allow(MAX_UNITS);
  return meter;
}

export interface AssertedTextsOptions {
  /** Whether the pattern is the whole text. Otherwise, it matches somewhere in it. */
  readonly isWhole: boolean;
  /** Of the number of characters. */
  readonly bounds: CountBounds;
  /** Where the pattern is, for errors. */
  readonly place: string;
  /** See `createAssertionMeter`. */
  readonly meter: WorkMeter;
  /** Rules are added to it. */
  readonly rules: Map<string, Expression>;
}

/** Throws EngineError `invalid_argument` for unsupported syntax, for a pattern without a text, and for too many states. */
export function readAssertedTexts(
  pattern: string,
  { isWhole, bounds, place, meter, rules }: AssertedTextsOptions,
): Expression {
  if (pattern.length > MAX_CHARACTERS) {
    refuseStructuredOutput(
      `${place} has lookaheads and more than ${MAX_CHARACTERS} characters, which is not supported`,
    );
  }
  const automaton = automatonOf(readAssertionPattern(pattern, place), isWhole, meter);
  const prefix = `${place} (state ${rules.size})`;
  const texts = automaton === null ? "too-large" : automatonLanguage(automaton, bounds, prefix, rules);
  if (texts === null) return refuseStructuredOutput(`${place} matches no text of the allowed length`);
  if (texts === "too-large") {
    return refuseStructuredOutput(`${place} has lookaheads and counts that take too many states; make them smaller`);
  }
  return texts;
}
