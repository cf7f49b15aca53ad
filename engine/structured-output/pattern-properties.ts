/** Divides the names of properties by the patterns of `patternProperties`, so that each name has one schema. */
import { patternOfNames } from "./pattern-conditions.ts";
import { createPatternMatcher } from "./pattern-matcher.ts";
import type { PatternMatcher } from "./pattern-matcher.ts";

/** Names that match a pattern, with the schema of their values. */
export interface NamesByPattern {
  readonly pattern: string;
  readonly schema: unknown;
}

interface PatternProperty {
  readonly pattern: string;
  readonly schema: unknown;
  readonly matcher: PatternMatcher;
}

/** Up to so many patterns, names that match several of them are allowed, and names that match none. */
const MAX_COMBINED = 3;

export class PatternProperties {
  readonly #patterns: readonly PatternProperty[];

  constructor(patternProperties: Readonly<Record<string, unknown>>, path: string) {
    this.#patterns = Object.entries(patternProperties).map(([pattern, schema]) => ({
      pattern,
      schema,
      matcher: createPatternMatcher(pattern, `${path}.patternProperties.${pattern}`),
    }));
  }

  /** Of all patterns that match a name. */
  schemasOf(name: string): readonly unknown[] {
    return this.#patterns.filter(({ matcher }) => matcher.matches(name)).map(({ schema }) => schema);
  }

  /**
   * The classes of all names but some. Names that match no pattern are a class if `rest` is not false. Beside more than
   * three patterns, names that match several of them or none are left out.
   */
  divide(names: readonly string[], rest: unknown): readonly NamesByPattern[] {
    const classes = this.#sets().map((set): NamesByPattern => {
      const others = this.#patterns.filter((pattern) => !set.includes(pattern) && !areApart(pattern, set[0]!));
      const excluded = names.filter((name) => set.every(({ matcher }) => matcher.matches(name)));
      const schemas = set.map(({ schema }) => schema);
      const isPlain = set.length === 1 && others.length === 0 && excluded.length === 0;
      return {
        pattern: isPlain ? set[0]!.pattern : patternOfNames(set.map(toText), others.map(toText), excluded),
        schema: schemas.length === 1 ? schemas[0] : { allOf: schemas },
      };
    });
    if (rest === false || this.#patterns.length > MAX_COMBINED) return classes;
    const excluded = names.filter((name) => this.schemasOf(name).length === 0);
    return [...classes, { pattern: patternOfNames([], this.#patterns.map(toText), excluded), schema: rest }];
  }

  /** Of patterns that names may match together. */
  #sets(): readonly (readonly PatternProperty[])[] {
    const single = this.#patterns.map((pattern) => [pattern]);
    if (this.#patterns.length > MAX_COMBINED) return single;
    const sets: (readonly PatternProperty[])[] = [];
    for (const pattern of this.#patterns) {
      const larger = sets.filter((set) => !set.some((other) => areApart(pattern, other)));
      sets.push([pattern], ...larger.map((set) => set.concat(pattern)));
    }
    return sets;
  }
}

/** Whether no name matches both, because matching names begin or end differently. */
function areApart({ matcher: left }: PatternProperty, { matcher: right }: PatternProperty): boolean {
  return (
    (!left.beginning.startsWith(right.beginning) && !right.beginning.startsWith(left.beginning)) ||
    (!left.ending.endsWith(right.ending) && !right.ending.endsWith(left.ending))
  );
}

function toText({ pattern }: PatternProperty): string {
  return pattern;
}
