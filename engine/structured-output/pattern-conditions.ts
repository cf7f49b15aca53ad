/** Patterns of the texts that match several patterns, do not match some, or are not some constants. */

const anyText = String.raw`[\s\S]*`;

/** Matches the texts in which both patterns match somewhere. */
export function patternOfBoth(left: string, right: string): string {
  return `^(?=${anyText}(?:${left}))(?=${anyText}(?:${right}))`;
}

/** Matches the texts in which a pattern matches nowhere. */
export function patternOfNone(pattern: string): string {
  return `^(?!${anyText}(?:${pattern}))`;
}

/** Matches all texts but some. */
export function patternOfOthers(texts: readonly string[]): string {
  return `^${noneOf(texts)}`;
}

/** Matches the texts in which all of some patterns and none of others match, but not some texts. */
export function patternOfNames(
  matching: readonly string[],
  others: readonly string[],
  excluded: readonly string[],
): string {
  const positive = matching.map((pattern) => `(?=${anyText}(?:${pattern}))`);
  const negative = others.map((pattern) => `(?!${anyText}(?:${pattern}))`);
  return `^${[excluded.length === 0 ? "" : noneOf(excluded), ...positive, ...negative].join("")}`;
}

function noneOf(texts: readonly string[]): string {
  return `(?!(?:${texts.map((text) => text.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`)).join("|")})$)`;
}
