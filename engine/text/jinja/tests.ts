/** Jinja's tests: `value is odd`. */
import { applyComparison, isIn } from "./operators.ts";
import { isLower, isUpper } from "./python-text.ts";
import {
  asText,
  Callable,
  Float,
  isDict,
  isList,
  JinjaError,
  tryItems,
  tryNumber,
  Tuple,
  typeName,
  Undefined,
} from "./values.ts";
import type { Value } from "./values.ts";

type Test = (value: Value, args: readonly Value[]) => boolean;

const comparison =
  (operator: string): Test =>
  (value, [other]) => {
    if (other === undefined) throw new JinjaError("the test needs a value to compare with");
    return applyComparison(operator, value, other);
  };

function requireNumber(value: Value | undefined): number {
  const number = value === undefined ? null : tryNumber(value);
  if (number === null)
    throw new JinjaError(`the test needs a number, not ${value === undefined ? "nothing" : typeName(value)}`);
  return number;
}

const equal = comparison("==");
const unequal = comparison("!=");
const less = comparison("<");
const lessOrEqual = comparison("<=");
const greater = comparison(">");
const greaterOrEqual = comparison(">=");

const tests: Readonly<Record<string, Test>> = {
  "!=": unequal,
  "<": less,
  "<=": lessOrEqual,
  "==": equal,
  ">": greater,
  ">=": greaterOrEqual,
  boolean: (value) => typeof value === "boolean",
  callable: (value) => value instanceof Callable,
  defined: (value) => !(value instanceof Undefined),
  divisibleby: (value, [divisor]) => requireNumber(value) % requireNumber(divisor) === 0,
  eq: equal,
  equalto: equal,
  escaped: () => false,
  even: (value) => requireNumber(value) % 2 === 0,
  false: (value) => value === false,
  float: (value) => value instanceof Float,
  ge: greaterOrEqual,
  greaterthan: greater,
  gt: greater,
  in: (value, [container]) => {
    if (container === undefined) throw new JinjaError("the test needs a container");
    return isIn(value, container);
  },
  integer: (value) => typeof value === "number" || typeof value === "bigint",
  iterable: (value) => tryItems(value) !== null,
  le: lessOrEqual,
  lessthan: less,
  lower: (value) => isLower(asText(value)),
  lt: less,
  mapping: isDict,
  ne: unequal,
  none: (value) => value === null,
  number: (value) => tryNumber(value) !== null,
  odd: (value) => Math.abs(requireNumber(value) % 2) === 1,
  sameas: (value, [other]) => value === other,
  sequence: (value) =>
    typeof value === "string" || isList(value) || value instanceof Tuple || isDict(value) || value instanceof Undefined,
  string: (value) => typeof value === "string",
  true: (value) => value === true,
  undefined: (value) => value instanceof Undefined,
  upper: (value) => isUpper(asText(value)),
};

/** @throws JinjaError for an unknown test, and for values that the test does not take. */
export function applyTest(name: string, value: Value, args: readonly Value[]): boolean {
  const test = Object.hasOwn(tests, name) ? tests[name] : undefined;
  if (test === undefined) throw new JinjaError(`No test named '${name}'.`);
  return test(value, args);
}
