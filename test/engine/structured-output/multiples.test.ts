import * as fc from "fast-check";
import { expect, test } from "vitest";

import { readerOf } from "./schema-readers.ts";

/** In thousandths. */
const thousandths = fc.integer({ min: 1, max: 400 });
const range = fc.tuple(fc.integer({ min: -9999, max: 9999 }), fc.integer({ min: 0, max: 9999 }));

test.for(["integer", "number"])("exactly the multiples of type %s within the bounds match", (type) => {
  fc.assert(
    fc.property(thousandths, range, fc.boolean(), fc.boolean(), (step, [least, length], excludesMin, excludesMax) => {
      const [min, max] = [least, least + length];
      const isMatch = (value: number): boolean =>
        value % step === 0 &&
        (type === "number" || value % 1000 === 0) &&
        (excludesMin ? value > min : value >= min) &&
        (excludesMax ? value < max : value <= max);
      const near = [min, max, 0, min + (max - min) / 2].map(Math.round);
      const values = near.flatMap((value) => Array.from({ length: 30 }, (_, index) => value - 15 + index));
      const steps = near.flatMap((value) => [-1, 0, 1].map((offset) => (Math.round(value / step) + offset) * step));
      const candidates = [
        ...values,
        ...steps,
        ...[...values, ...steps].map((value) => Math.round(value / 1000) * 1000),
      ];
      const schema = {
        type,
        multipleOf: step / 1000,
        [excludesMin ? "exclusiveMinimum" : "minimum"]: min / 1000,
        [excludesMax ? "exclusiveMaximum" : "maximum"]: max / 1000,
      };
      fc.pre(candidates.some(isMatch));
      const reader = readerOf(schema);
      for (const value of candidates) {
        const text = String((value === 0 ? 0 : value) / 1000);
        expect([text, reader.judge(Buffer.from(text)) === "whole"]).toEqual([text, isMatch(value)]);
      }
    }),
    { numRuns: 150 },
  );
});

test.for<[object, readonly string[], readonly string[]]>([
  [{ type: "number", multipleOf: 0.01 }, ["0", "0.07", "12.30", "-4.1", "5", "5.000"], ["0.001", "1e2", ".5", "-0"]],
  [{ type: "number", multipleOf: 2 }, ["4", "4.0", "-10.00"], ["3", "4.5", "4."]],
  [{ type: "integer", multipleOf: 0.4 }, ["0", "2", "-4", "10"], ["1", "2.0", "0.4"]],
  [{ type: "integer", multipleOf: 1e6 }, ["0", "3000000"], ["1000001", "300000"]],
  [{ type: "integer", multipleOf: 1024 }, ["1048576", "999999999998976"], ["1000000", "-1"]],
  [{ type: "integer", multipleOf: 5, maximum: Number.MAX_SAFE_INTEGER }, ["999999999999995"], ["9007199254740990"]],
  [{ type: ["integer", "null"], multipleOf: 7, minimum: 1 }, ["7", "49", "null"], ["0", "8"]],
])("%o are multiples", ([schema, multiples, others]) => {
  const reader = readerOf(schema);
  expect([...multiples, ...others].filter((text) => reader.judge(Buffer.from(text)) === "whole")).toEqual(multiples);
});
