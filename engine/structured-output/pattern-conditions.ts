/** Patterns of the texts that match two patterns, do not match one, or are not some constants. */

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
  return `^(?!(?:${texts.map((text) => text.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`)).join("|")})$)`;
}
