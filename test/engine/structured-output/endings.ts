/** Endings of texts, found from the expressions of a language alone and without the engine's recognizer. */
import type { Expression, Language } from "../../../engine/structured-output/expression.ts";

/** The matches of an expression that begin at one place of a text. */
interface Matches {
  /** Places where a match ends. */
  readonly ends: ReadonlySet<number>;
  /** The shortest text after the end of the text with which a match is complete, or null. */
  readonly ending: string | null;
}

/**
 * Returns a shortest text that completes `text`, or null if there is none. `text` consists of ASCII characters. Takes
 * time that grows with a power of the length, because it computes the matches of all rules at all places until none is
 * added.
 */
export function findEnding({ root, rules }: Language, text: string): string | null {
  const matchesOfRules = new Map<string, Matches[]>();
  for (const name of rules.keys()) {
    matchesOfRules.set(
      name,
      Array.from({ length: text.length + 1 }, () => ({ ends: new Set<number>(), ending: null })),
    );
  }

  const matchesOf = (part: Expression, start: number): Matches => {
    switch (part.kind) {
      case "set": {
        if (part.set.length === 0) return { ends: new Set(), ending: null };
        if (start === text.length) return { ends: new Set(), ending: String.fromCodePoint(part.set[0]![0]) };
        const code = text.charCodeAt(start);
        const isMember = part.set.some(([first, last]) => first <= code && code <= last);
        return fromEnds(isMember ? [start + 1] : []);
      }
      case "words": {
        const rest = text.slice(start);
        const endings = part.words.filter((word) => word.startsWith(rest)).map((word) => word.slice(rest.length));
        const ends = part.words.filter((word) => rest.startsWith(word)).map((word) => start + word.length);
        return { ends: new Set(ends), ending: shortest(endings) };
      }
      case "sequence":
        return part.parts.reduce((before, inner) => follow(before, inner), fromEnds([start]));
      case "alternatives":
        return unite(part.options.map((option) => matchesOf(option, start)));
      case "repetition": {
        let matches = fromEnds([start]);
        for (let count = 0; count < part.min; count++) matches = follow(matches, part.part);
        for (let count = part.min; count < part.max; count++) {
          const further = unite([matches, follow(matches, part.part)]);
          if (further.ends.size === matches.ends.size && further.ending === matches.ending) break;
          matches = further;
        }
        return matches;
      }
      case "limited":
        throw new Error("Only JSON Schemas limit the characters of a part.");
      case "rule":
        return matchesOfRules.get(part.name)![start]!;
    }
  };
  const fromEnds = (ends: readonly number[]): Matches => ({
    ends: new Set(ends),
    ending: ends.includes(text.length) ? "" : null,
  });
  /** The matches of a part and then of another one. */
  const follow = (before: Matches, part: Expression): Matches => {
    const after = Array.from(before.ends, (end) => matchesOf(part, end));
    const last = matchesOf(part, text.length).ending;
    if (before.ending !== null && last !== null) after.push({ ends: new Set(), ending: before.ending + last });
    return unite(after);
  };

  for (let hasChanged = true; hasChanged;) {
    hasChanged = false;
    for (const [name, body] of rules) {
      const known = matchesOfRules.get(name)!;
      for (const [start, before] of known.entries()) {
        const now = unite([before, matchesOf(body, start)]);
        if (now.ends.size === before.ends.size && now.ending === before.ending) continue;
        known[start] = now;
        hasChanged = true;
      }
    }
  }
  return matchesOf(root, 0).ending;
}

function unite(matches: readonly Matches[]): Matches {
  return {
    ends: new Set(matches.flatMap(({ ends }) => Array.from(ends))),
    ending: shortest(matches.flatMap(({ ending }) => ending ?? [])),
  };
}

/** The first of the shortest. */
function shortest(texts: readonly string[]): string | null {
  return texts.length === 0 ? null : texts.reduce((best, text) => (text.length < best.length ? text : best));
}
