/** Bounds of numbers. XGrammar lets pass some numbers outside of most ranges, but not outside of those told it here. */

export type NumberRange =
  | { readonly kind: "unbounded" }
  /** XGrammar keeps to it. */
  | { readonly kind: "from-natural-number" }
  /** Few enough to be told one by one. */
  | { readonly kind: "listed"; readonly values: readonly number[] }
  | { readonly kind: "unsupported" };

/** Each becomes a literal of the grammar. */
const maxListed = 2048;

/** Of a JSON Schema, whose `type` and bounds decide. */
export function numberRangeOf(schema: Readonly<Record<string, unknown>>): NumberRange {
  const { type, minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
  const bounds = [minimum, maximum, exclusiveMinimum, exclusiveMaximum];
  if (bounds.every((bound) => bound === undefined)) return { kind: "unbounded" };
  if (type !== "integer") return { kind: "unsupported" };
  const first = Math.max(lowerBound(minimum, 0), lowerBound(exclusiveMinimum, 1));
  const last = -Math.max(lowerBound(negated(maximum), 0), lowerBound(negated(exclusiveMaximum), 1));
  if (last === Infinity && first >= 0 && Number.isSafeInteger(first)) return { kind: "from-natural-number" };
  const numValues = last - first + 1;
  if (!(numValues >= 1 && numValues <= maxListed && Number.isSafeInteger(first))) return { kind: "unsupported" };
  return { kind: "listed", values: Array.from({ length: numValues }, (_, index) => first + index) };
}

/** The least integer allowed, where 1 is `distance` if the bound itself is not; NaN for what is no number. */
function lowerBound(bound: unknown, distance: 0 | 1): number {
  if (bound === undefined) return -Infinity;
  if (typeof bound !== "number") return Number.NaN;
  return Number.isInteger(bound) ? bound + distance : Math.ceil(bound);
}

function negated(bound: unknown): unknown {
  return typeof bound === "number" ? -bound : bound;
}
