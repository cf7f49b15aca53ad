import { expect, test } from "vitest";
import { z } from "zod";

import { shown } from "../../engine/excerpt.ts";
import { describeProblem, readBySchema } from "../../engine/schema-problem.ts";

const schema = z.strictObject({
  name: z.string(),
  isOn: z.boolean().optional(),
  layers: z.array(z.object({ size: z.int().positive() })).nonempty(),
  kind: z.enum(["small", "large"]).optional(),
  share: z.number("a share from 0 to 1").max(1, "a share from 0 to 1").optional(),
  either: z.union([z.int(), z.object({ height: z.int() })]).optional(),
});
const valid = { name: "n", layers: [{ size: 1 }] };

test.for([
  [{ path: "", problem: "is missing" }, "", "it is missing"],
  [{ path: "vocab_size", problem: "is 1.5" }, "text_config", "text_config.vocab_size is 1.5"],
  [{ path: "[0].id", problem: "is missing" }, "tokens", "tokens[0].id is missing"],
  [{ path: "", problem: "is 1" }, "text_config", "text_config is 1"],
] as const)("describes %o in %j as %s", ([problem, parent, expected]) => {
  expect(describeProblem(problem, parent)).toBe(expected);
});

test("returns the schema's output for a valid value", () => {
  expect(readBySchema(schema, valid)).toEqual({ isValid: true, value: valid });
});

test.for<[unknown, string, string]>([
  [undefined, "", "is missing; expected an object"],
  [[1, 2], "", "is a list of 2 elements; expected an object"],
  [{ layers: [{ size: 1 }] }, "name", "is missing; expected a text"],
  [{ ...valid, name: { first: "n" } }, "name", "is an object; expected a text"],
  [{ ...valid, isOn: "yes" }, "isOn", 'is "yes"; expected true or false'],
  [{ ...valid, layers: [] }, "layers", "is a list of 0 elements; expected at least 1 element"],
  [{ ...valid, layers: [{ size: 1 }, { size: 0 }] }, "layers[1].size", "is 0; expected more than 0"],
  [{ ...valid, layers: [{ size: Number.POSITIVE_INFINITY }] }, "layers[0].size", "is Infinity; expected a number"],
  [{ ...valid, layers: [{ size: null }] }, "layers[0].size", "is null; expected a number"],
  [{ ...valid, kind: "huge" }, "kind", 'is "huge"; expected "small" or "large"'],
  [{ ...valid, share: 2 }, "share", "is 2; expected a share from 0 to 1"],
  [{ ...valid, either: { height: 0.5 } }, "either.height", "is 0.5; expected an integer"],
  [{ ...valid, other: 1 }, "", 'is an object; expected no field "other"'],
])("%j: %s %s", ([json, path, problem]) => {
  expect(readBySchema(schema, json)).toEqual({ isValid: false, path, problem });
});

test("shows values in a few words, whatever their size and depth", () => {
  let deep: unknown = 1;
  for (let level = 0; level < 100_000; level++) deep = { deep };
  expect(shown(deep)).toBe("an object");
  expect(shown(Array.from({ length: 1_000_000 }, () => 0))).toBe("a list of 1000000 elements");
  expect(shown("x".repeat(1_000_000))).toBe(`"${"x".repeat(40)}…"`);
});
