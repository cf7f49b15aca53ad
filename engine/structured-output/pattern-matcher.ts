/** Decides whether texts match patterns, with bounded work. */
import { createAssertionMeter, readAssertedTexts } from "./asserted-texts.ts";
import { hasAssertions } from "./assertion-pattern.ts";
import type { Expression } from "./expression.ts";
import { toProgramInSlices } from "./language-program.ts";
import { readSearchPattern } from "./pattern-reader.ts";
import { Recognizer } from "./recognizer.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { MAX_STEP_UNITS } from "./work-limits.ts";
import { TooMuchWork, WorkMeter } from "./work-meter.ts";

const encoder = new TextEncoder();

export interface PatternMatcher {
  readonly matches: (text: string) => boolean;
  /** With which each matching text begins, and with which it ends, as far as that is plain. */
  readonly beginning: string;
  readonly ending: string;
}

/**
 * Finds whether a pattern matches somewhere in a text. Throws EngineError `invalid_argument` for unsupported syntax and for too
 * much work.
 *
 * @param place Where the pattern is, for errors.
 */
export function createPatternMatcher(pattern: string, place: string): PatternMatcher {
  const rules = new Map<string, Expression>();
  const meter = createAssertionMeter();
  const bounds = { min: 0, max: Infinity };
  const root = hasAssertions(pattern)
    ? readAssertedTexts(pattern, { isWhole: false, bounds, place, meter, rules })
    : readSearchPattern(pattern, place);
  if (root === null) return { matches: () => false, beginning: "", ending: "" };
  const slices = toProgramInSlices({ root, rules });
  let slice = slices.next();
  while (slice.done !== true) slice = slices.next();
  const work = new WorkMeter();
  const recognizer = new Recognizer(slice.value, work);
  const matches = (text: string): boolean => {
    work.allow(MAX_STEP_UNITS);
    try {
      let position = recognizer.start();
      for (const byte of encoder.encode(text)) {
        const next = recognizer.advance(position, byte);
        if (next === null) return false;
        position = next;
      }
      return position.canEnd;
    } catch (error) {
      if (!(error instanceof TooMuchWork)) throw error;
      return refuseStructuredOutput(`${place} can match names in too many ways; make it less ambiguous`, error);
    }
  };
  return { matches, beginning: edgeOf(root, 0), ending: edgeOf(root, -1) };
}

/** The word at the start (0) or end (-1) of an expression; empty if there are several. */
function edgeOf(expression: Expression, index: 0 | -1): string {
  if (expression.kind === "sequence") return edgeOf(expression.parts.at(index)!, index);
  return expression.kind === "words" && expression.words.length === 1 ? expression.words[0]! : "";
}
