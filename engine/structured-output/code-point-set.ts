/** Sets of characters, and their spelling for XGrammar. */

/** Both ends belong to it. */
export type CodePointRange = readonly [first: number, last: number];
/** Ascending, neither overlapping nor touching. */
export type CodePointSet = readonly CodePointRange[];

export const lastCodePoint = 0x10_ff_ff;
const lastAscii = 0x7f;
const pastAscii: CodePointSet = [[lastAscii + 1, lastCodePoint]];

export function unite(...sets: readonly (readonly CodePointRange[])[]): CodePointSet {
  const united: [number, number][] = [];
  for (const [first, last] of sets.flat().sort((left, right) => left[0] - right[0])) {
    const previous = united.at(-1);
    if (previous !== undefined && first <= previous[1] + 1) previous[1] = Math.max(previous[1], last);
    else united.push([first, last]);
  }
  return united;
}

export function complement(set: CodePointSet): CodePointSet {
  const gaps: CodePointRange[] = [];
  let next = 0;
  for (const [first, last] of set) {
    if (next < first) gaps.push([next, first - 1]);
    next = last + 1;
  }
  if (next <= lastCodePoint) gaps.push([next, lastCodePoint]);
  return gaps;
}

export function subtract(set: CodePointSet, removed: CodePointSet): CodePointSet {
  return complement(unite(complement(set), removed));
}

/** How a set is written for XGrammar. */
export type SetSpelling =
  /** As a bracket expression. */
  | { readonly kind: "class"; readonly text: string }
  /** As a bracket expression, or else one of these characters. */
  | { readonly kind: "class-or-one-of"; readonly text: string; readonly characters: readonly string[] }
  /** Not at all. */
  | { readonly kind: "none" };

/** Each becomes a literal of its own. */
const maxLiterals = 256;

/**
 * The build in use misreads bracket expressions with characters past ASCII, whether they list what matches or what does
 * not. Without such, one that lists what does not match works, and so do literals: a set has to contain all characters
 * past ASCII, or few. The set is not empty.
 */
export function spellSet(set: CodePointSet): SetSpelling {
  const ascii = subtract(set, pastAscii);
  const rest = subtract(set, [[0, lastAscii]]);
  if (rest.length === 0) return { kind: "class", text: `[${spellRanges(ascii)}]` };
  if (rest[0][0] === lastAscii + 1 && rest[0][1] === lastCodePoint) {
    return { kind: "class", text: `[^${spellRanges(subtract(complement(ascii), pastAscii))}]` };
  }
  const numCharacters = rest.reduce((sum, [first, last]) => sum + last - first + 1, 0);
  if (numCharacters > maxLiterals) return { kind: "none" };
  const characters = rest.flatMap(([first, last]) =>
    Array.from({ length: last - first + 1 }, (_, index) => String.fromCodePoint(first + index)),
  );
  return { kind: "class-or-one-of", text: ascii.length === 0 ? "" : `[${spellRanges(ascii)}]`, characters };
}

/** Letters and digits come first: XGrammar takes those behind some characters for more digits of their codes. */
function spellRanges(set: CodePointSet): string {
  const isPlain = ([first]: CodePointRange): boolean => spell(first).length === 1;
  const ranges = [...set.filter(isPlain), ...set.filter((range) => !isPlain(range))];
  return ranges.map(([first, last]) => (first === last ? spell(first) : `${spell(first)}-${spell(last)}`)).join("");
}

/** For a bracket expression or a pattern. */
export function spell(codePoint: number): string {
  const character = String.fromCodePoint(codePoint);
  if (codePoint > 0xff_ff || /[a-z0-9]/i.test(character)) return character;
  return `\\u${codePoint.toString(16).padStart(4, "0")}`;
}
