import * as fc from "fast-check";
import { expect, test } from "vitest";

import { numberRangeOf } from "../../../engine/structured-output/number-range.ts";
import { Reader } from "./grammars.ts";

const boundNames = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] as const;
type Bounds = { readonly [Name in (typeof boundNames)[number]]?: number };

/** Decides whether a text is a number in the range; null for an unsupported range. */
function matcherOf(schema: Bounds & { readonly type: string }): ((text: string) => boolean) | null {
  const range = numberRangeOf(schema);
  if (range.kind !== "bounded") return null;
  const reader = new Reader({ kind: "grammar", grammar: `root ::= ${range.rule}` });
  return (text) => reader.judge(Buffer.from(text)) === "whole";
}

function isWithin(value: number, { minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Bounds): boolean {
  const [least, most] = [minimum ?? -Infinity, maximum ?? Infinity];
  return (
    value >= least && value <= most && value > (exclusiveMinimum ?? -Infinity) && value < (exclusiveMaximum ?? Infinity)
  );
}

const bound = fc.oneof(fc.integer({ min: -25, max: 25 }), fc.integer({ min: -30_000, max: 30_000 }));
const decimalBound = fc.oneof(
  bound,
  fc.integer({ min: -30, max: 30 }).map((value) => value / 10),
  fc.integer({ min: -3000, max: 3000 }).map((value) => value / 1000),
);

function boundsOf(each: fc.Arbitrary<number>): fc.Arbitrary<Bounds> {
  return fc
    .record(Object.fromEntries(boundNames.map((name) => [name, each])), { requiredKeys: [] })
    .filter((chosen) => Object.keys(chosen).length > 0);
}

/** At the bounds, next to them, and anywhere. */
function valuesNear(chosen: Bounds, further: readonly number[]): number[] {
  const ends = Object.values(chosen).flatMap((end) => [end - 1, end, end + 1, 10 * end, -end]);
  return [...ends, ...further, 0, 9, 10, 99, 100].map((value) => (value === 0 ? 0 : value));
}

test("exactly the integers within the bounds match", () => {
  fc.assert(
    fc.property(
      boundsOf(bound),
      fc.array(fc.integer({ min: -99_999, max: 99_999 }), { maxLength: 20 }),
      (chosen, further) => {
        const matches = matcherOf({ type: "integer", ...chosen });
        for (const value of valuesNear(chosen, further)) {
          expect(matches?.(String(value)) ?? false, `${value}`).toBe(isWithin(value, chosen));
        }
      },
    ),
    { numRuns: 300 },
  );
});

test("integers can be bounded by the largest safe ones, as in schemas generated from code", () => {
  const matches = matcherOf({
    type: "integer",
    minimum: Number.MIN_SAFE_INTEGER,
    maximum: Number.MAX_SAFE_INTEGER,
  })!;
  const within = ["0", "-1", "12345678901234", "9007199254740991", "-9007199254740991", "8999999999999999"];
  const outside = ["9007199254740992", "-9007199254740992", "9100000000000000", "10000000000000000"];
  expect([...within, ...outside].filter(matches)).toEqual(within);
});

test("exactly the numbers with a few decimals within bounds of a few decimals match", () => {
  const decimals = fc.array(fc.integer({ min: -9_999_999, max: 9_999_999 }), { maxLength: 20 });
  fc.assert(
    fc.property(boundsOf(decimalBound), decimals, (chosen, further) => {
      const matches = matcherOf({ type: "number", ...chosen });
      const near = Object.values(chosen).flatMap((end) => [end - 0.001, end + 0.001, end + 0.05, end + 0.5]);
      const fractions = further.map((value) => value / 1000);
      for (const value of valuesNear(chosen, [...near, ...fractions])) {
        const text = String(Number(value.toFixed(3)) || 0);
        expect([text, matches?.(text) ?? false]).toEqual([text, isWithin(Number(text), chosen)]);
      }
    }),
    { numRuns: 1000 },
  );
});

test("numbers are written as in JSON", () => {
  const matches = matcherOf({ type: "number", minimum: -10, maximum: 10 })!;
  const texts = ["-10.0", "10.000", "0.0", "-0.5", "9.999999999999", "007", "-0", "+1", "1.", ".5", "10.01", "1e0", ""];
  expect(texts.filter(matches)).toEqual(["-10.0", "10.000", "0.0", "-0.5", "9.999999999999"]);
});

test("numbers that would be rounded to an excluded bound do not match", () => {
  const matches = matcherOf({ type: "number", minimum: 0, exclusiveMaximum: 1000 })!;
  expect(matches(`999.${"9".repeat(11)}`)).toBe(true);
  expect(matches(`999.${"9".repeat(20)}`)).toBe(false);
});

test.for<[Bounds, readonly string[], readonly string[]]>([
  [{ minimum: 0.5 }, ["0.5", "0.50", "0.51", "1", "0.9", "12.3"], ["0.4", "0.49", "0", "-1", "0.05"]],
  [{ exclusiveMinimum: 0.5, maximum: 0.75 }, ["0.501", "0.75", "0.750", "0.6"], ["0.5", "0.50", "0.751", "0.8", "1"]],
  [
    { minimum: -0.25, exclusiveMaximum: 1.5 },
    ["-0.25", "-0.1", "0", "0.0", "1.49", "1"],
    ["-0.26", "1.5", "1.50", "-1"],
  ],
  [{ exclusiveMinimum: 0, maximum: 0.01 }, ["0.01", "0.001", "0.0100"], ["0", "0.0", "0.011", "0.1", "1"]],
  [{ minimum: 0.1, maximum: 0.1 }, ["0.1", "0.10"], ["0.11", "0.09", "0", "1"]],
])("%o are bounds with decimals", ([chosen, within, outside]) => {
  expect([...within, ...outside].filter(matcherOf({ type: "number", ...chosen })!)).toEqual(within);
});

test.for<[Bounds & { readonly type: string }, readonly string[], readonly string[]]>([
  // The bounds of Pydantic's 64-bit integers, rounded by every parser of JSON to 2^63.
  [
    { type: "integer", minimum: -(2 ** 63), maximum: 2 ** 63 },
    ["9223372036854770000", "-9223372036854770000", "9007199254740993"],
    ["9223372036854775808", "-9223372036854775809", "10000000000000000000"],
  ],
  [{ type: "integer", exclusiveMaximum: 1e20 }, ["99999999999999000000"], ["99999999999999999999"]],
  // Those of Zod's 32-bit floats.
  [
    { type: "number", minimum: -3.4028234663852886e38, maximum: 3.4028234663852886e38 },
    ["340282346638528000000000000000000000000", "-1.5", "0"],
    ["340282346638528900000000000000000000000", "999999999999999999999999999999999999999"],
  ],
  [
    { type: "number", exclusiveMaximum: 2 ** 53 - 1 },
    ["9007199254740980.5"],
    ["9007199254740990.9", "9007199254740991"],
  ],
  [{ type: "number", exclusiveMaximum: 1e38 }, ["9".repeat(15) + "0".repeat(22)], ["9".repeat(38)]],
  [{ type: "number", minimum: 1e-7 }, ["0.0000001", "0.1", "1"], ["0", "0.00000009"]],
  [{ type: "number", exclusiveMinimum: 1e-20 }, ["0.00000000000001"], ["0", "0.0"]],
  [{ type: "number", maximum: 0.1234567890123456 }, ["0.12345678901234"], ["0.123456789012346", "0.1234567890123457"]],
])("bounds of more than 15 digits are narrowed: %o", ([chosen, within, outside]) => {
  expect([...within, ...outside].filter(matcherOf(chosen)!)).toEqual(within);
});

test("the bounds of a double are none", () => {
  const range = { type: "number", minimum: -Number.MAX_VALUE, maximum: Number.MAX_VALUE };
  expect(numberRangeOf(range).kind).toBe("unbounded");
});

test.for([
  [{ type: "integer", minimum: 5, maximum: 4 }],
  [{ type: "integer", exclusiveMinimum: 1, exclusiveMaximum: 2 }],
  [{ type: "number", exclusiveMinimum: 1, maximum: 1 }],
  [{ type: "number", exclusiveMinimum: 0.5, exclusiveMaximum: 0.5 }],
  [{ type: "integer", minimum: 1e300 }],
  [{ type: "string", minimum: 1 }],
])("%o is not supported", ([schema]) => {
  expect(numberRangeOf(schema!).kind).toBe("unsupported");
});
