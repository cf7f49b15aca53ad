/** Finds what cannot be generated within a form, before anything is. */
import type { Expression, Language } from "./expression.ts";

/**
 * The name of a rule that no text satisfies whole, since every way through it leads into such a rule again (`a ::= a`, or
 * an object that requires another one like itself); null where there is none. A text that gets into one never comes to
 * an end, or to where no token is allowed. A rule ends once all that it needs ends, so those that mention a rule are
 * looked at again when that rule is found to end.
 */
export function findEndlessRule({ rules }: Language): string | null {
  const endingRules = new Set<string>();
  const mentions = new Map<string, string[]>();
  for (const [name, body] of rules) {
    for (const mentioned of mentionedRules(body)) {
      const names = mentions.get(mentioned);
      if (names === undefined) mentions.set(mentioned, [name]);
      else names.push(name);
    }
  }
  const pending = Array.from(rules.keys());
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    if (endingRules.has(name) || !canEnd(rules.get(name)!, endingRules)) continue;
    endingRules.add(name);
    pending.push(...(mentions.get(name) ?? []));
  }
  return Array.from(rules.keys()).find((name) => !endingRules.has(name)) ?? null;
}

function canEnd(expression: Expression, endingRules: ReadonlySet<string>): boolean {
  switch (expression.kind) {
    case "set":
      return expression.set.length > 0;
    case "words":
      return true;
    case "sequence":
      return expression.parts.every((part) => canEnd(part, endingRules));
    case "alternatives":
      return expression.options.some((option) => canEnd(option, endingRules));
    case "repetition":
      return expression.min === 0 || canEnd(expression.part, endingRules);
    case "rule":
      return endingRules.has(expression.name);
    default:
      return expression satisfies never;
  }
}

function mentionedRules(expression: Expression, names = new Set<string>()): ReadonlySet<string> {
  if (expression.kind === "rule") names.add(expression.name);
  else if (expression.kind === "sequence") for (const part of expression.parts) mentionedRules(part, names);
  else if (expression.kind === "alternatives") for (const option of expression.options) mentionedRules(option, names);
  else if (expression.kind === "repetition") mentionedRules(expression.part, names);
  return names;
}
