/** Properties of rules that are known before generation. */
import type { Expression, Language } from "./expression.ts";
import { refuseStructuredOutput } from "./refusal.ts";

/** Throws EngineError `invalid_argument` for a language with a rule that never ends. */
export function refuseEndlessRules(language: Language): void {
  const endless = findEndlessRule(language);
  if (endless !== null) refuseStructuredOutput(`No text can have this form: its rule ${endless} never ends`);
}

/**
 * Returns the name of a rule that no complete text matches, because every way through it leads into such a rule again
 * (`a ::= a`, or an object that requires another one like itself), or null. A text that enters such a rule never ends
 * or reaches a point where no token is allowed.
 */
export function findEndlessRule({ rules }: Language): string | null {
  const endingRules = findEndingRules(rules);
  return Array.from(rules.keys()).find((name) => !endingRules.has(name)) ?? null;
}

/** Names of the rules that a complete text matches. */
export function findEndingRules(rules: Language["rules"]): ReadonlySet<string> {
  return findRules(rules, (part) =>
    part.kind === "set" ? part.set.length > 0 : part.kind === "words" || isOptional(part),
  );
}

/** Names of the rules that match the empty text. */
export function findNullableRules({ rules }: Language): ReadonlySet<string> {
  return findRules(rules, (part) => (part.kind === "words" ? part.words.includes("") : isOptional(part)));
}

/** Names of all rules that an expression mentions directly. */
export function mentionedRules(expression: Expression): ReadonlySet<string> {
  const names = new Set<string>();
  const visited = new Set<Expression>();
  const visit = (part: Expression): void => {
    if (visited.size === visited.add(part).size) return;
    if (part.kind === "rule") names.add(part.name);
    else for (const inner of partsOf(part)) visit(inner);
  };
  visit(expression);
  return names;
}

function isOptional(part: Expression): boolean {
  return part.kind === "repetition" && part.min === 0;
}

function partsOf(expression: Expression): readonly Expression[] {
  if (expression.kind === "sequence") return expression.parts;
  if (expression.kind === "alternatives") return expression.options;
  return expression.kind === "repetition" || expression.kind === "limited" ? [expression.part] : [];
}

/** An expression, at all its positions. Mutable. */
interface Place {
  /** The expressions that contain it, one entry per occurrence, and the rules whose body it is. */
  readonly within: (Place | string)[];
  /** Number of parts that must be found to have the property before this one has it. */
  numMissing: number;
}

/**
 * Computes the least set of rules with a property. Some expressions have the property themselves; sequences have it if
 * all parts do, alternatives if one does, repetitions and limited parts if the part does, and mentions of rules if the rule
 * does.
 */
function findRules(rules: Language["rules"], hasByItself: (expression: Expression) => boolean): ReadonlySet<string> {
  const found = new Set<string>();
  const mentions = new Map<string, Place[]>();
  const pending: Place[] = [];
  const places = new Map<Expression, Place>();
  const visit = (expression: Expression, within: Place | string): void => {
    const known = places.get(expression);
    if (known !== undefined) return void known.within.push(within);
    const place: Place = { within: [within], numMissing: expression.kind === "sequence" ? expression.parts.length : 1 };
    places.set(expression, place);
    if (hasByItself(expression)) {
      place.numMissing = 0;
      pending.push(place);
      return;
    }
    if (expression.kind === "rule") {
      const others = mentions.get(expression.name);
      if (others === undefined) mentions.set(expression.name, [place]);
      else others.push(place);
    }
    for (const part of partsOf(expression)) visit(part, place);
  };
  const find = (place: Place): void => {
    if (--place.numMissing === 0) pending.push(place);
  };
  for (const [name, body] of rules) visit(body, name);
  for (let place = pending.pop(); place !== undefined; place = pending.pop()) {
    for (const within of place.within) {
      if (typeof within !== "string") find(within);
      else if (!found.has(within)) {
        found.add(within);
        mentions.get(within)?.forEach(find);
      }
    }
  }
  return found;
}
