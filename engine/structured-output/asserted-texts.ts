/** The texts of patterns with lookaheads and word boundaries. */
import { readAssertionPattern, textEnd } from "./assertion-pattern.ts";
import type { PatternPart } from "./assertion-pattern.ts";
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

/** Null for a pattern without a text. Throws EngineError `invalid_argument` for unsupported syntax and too many states. */
export function readAssertedTexts(
  pattern: string,
  { isWhole, bounds, place, meter, rules }: AssertedTextsOptions,
): Expression | null {
  if (pattern.length > MAX_CHARACTERS) {
    refuseStructuredOutput(
      `${place} has lookaheads and more than ${MAX_CHARACTERS} characters, which is not supported`,
    );
  }
  const { part, counts } = withoutCounts(readAssertionPattern(pattern, place), isWhole);
  const automaton = automatonOf(part, isWhole, meter);
  const prefix = `${place} (state ${rules.size})`;
  const length = { min: Math.max(bounds.min, counts.min), max: Math.min(bounds.max, counts.max) };
  const texts = automaton === null ? "too-large" : automatonLanguage(automaton, length, prefix, rules);
  if (texts === "too-large") {
    return refuseStructuredOutput(`${place} has lookaheads and counts that take too many states; make them smaller`);
  }
  return texts;
}

const anyCount: CountBounds = { min: 0, max: Infinity };

/**
 * A pattern whose text is one repeated set behind lookaheads, such as `^(?=.*a).{8,64}$`, without the counts, which bound
 * the length of the text then. With them, the automaton would have its states once for each count.
 */
function withoutCounts(
  pattern: PatternPart,
  isWhole: boolean,
): { readonly part: PatternPart; readonly counts: CountBounds } {
  const parts = pattern.kind === "sequence" ? pattern.parts : [pattern];
  const [counted, ...others] = parts.filter((part) => !isEmpty(part));
  const isAnchored = isWhole || (parts[0]?.kind === "start" && parts.at(-1) === textEnd);
  if (!isAnchored || others.length > 0 || counted?.kind !== "repetition" || counted.part.kind !== "set") {
    return { part: pattern, counts: anyCount };
  }
  const { min, max } = counted;
  const any: PatternPart = { ...counted, ...anyCount };
  return {
    part: { kind: "sequence", parts: parts.map((part) => (part === counted ? any : part)) },
    counts: { min, max },
  };
}

function isEmpty({ kind }: PatternPart): boolean {
  return kind === "start" || kind === "lookahead" || kind === "boundary";
}
