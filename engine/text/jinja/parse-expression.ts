/** Parses the expressions of a template with the precedence of Jinja 3.1, which differs from Python's for filters. */
import type { Arguments, Comparison, Expression, FilterCall, Slice } from "./syntax.ts";
import { describe } from "./token-reader.ts";
import type { TokenReader } from "./token-reader.ts";
import { JinjaError } from "./values.ts";
import type { Value } from "./values.ts";

const constants: ReadonlyMap<string, Value> = new Map<string, Value>([
  ["true", true],
  ["True", true],
  ["false", false],
  ["False", false],
  ["none", null],
  ["None", null],
]);
const noArguments: Arguments = { args: [], keywords: [], list: null, dict: null };

export function parseExpression(reader: TokenReader): Expression {
  let value = parseOr(reader);
  while (reader.skipName("if")) {
    const condition = parseOr(reader);
    const falseExpr = reader.skipName("else") ? parseExpression(reader) : null;
    value = { type: "Ternary", condition, trueExpr: value, falseExpr };
  }
  return value;
}

/** One expression, or several with commas, which are a tuple. `parse` reads one of them. */
export function parseTuple(reader: TokenReader, parse: (reader: TokenReader) => Expression): Expression {
  const items: Expression[] = [];
  let isTuple = false;
  while (!isTupleEnd(reader)) {
    items.push(parse(reader));
    if (!reader.skipOperator(",")) break;
    isTuple = true;
  }
  const [only] = items;
  if (!isTuple && only !== undefined) return only;
  if (items.length === 0 && !reader.isOperator(")"))
    throw new JinjaError(`expected an expression, got ${describe(reader.current)}`);
  return { type: "Tuple", items };
}

function isTupleEnd(reader: TokenReader): boolean {
  const { type } = reader.current;
  return type === "end block" || type === "end output" || reader.isOperator(")") || reader.isName("recursive");
}

export function parseOr(reader: TokenReader): Expression {
  let left = parseAnd(reader);
  while (reader.skipName("or")) left = { type: "Binary", operator: "or", left, right: parseAnd(reader) };
  return left;
}

function parseAnd(reader: TokenReader): Expression {
  let left = parseNot(reader);
  while (reader.skipName("and")) left = { type: "Binary", operator: "and", left, right: parseNot(reader) };
  return left;
}

function parseNot(reader: TokenReader): Expression {
  if (reader.skipName("not")) return { type: "Unary", operator: "not", operand: parseNot(reader) };
  return parseComparison(reader);
}

function parseComparison(reader: TokenReader): Expression {
  const first = parseSum(reader);
  const rest: Comparison[] = [];
  for (;;) {
    const operator = comparisonOperator(reader);
    if (operator === null) break;
    rest.push({ operator, operand: parseSum(reader) });
  }
  return rest.length === 0 ? first : { type: "Comparison", first, rest };
}

function comparisonOperator(reader: TokenReader): string | null {
  if (reader.skipName("in")) return "in";
  if (reader.skipName("not")) return `not ${reader.expectName("in")}`;
  const token = reader.current;
  if (token.type !== "operator" || !["==", "!=", "<", "<=", ">", ">="].includes(token.value)) return null;
  reader.next();
  return token.value;
}

type Parse = (reader: TokenReader) => Expression;

function parseBinary(reader: TokenReader, operators: readonly string[], parse: Parse): Expression {
  let left = parse(reader);
  for (
    let token = reader.current;
    token.type === "operator" && operators.includes(token.value);
    token = reader.current
  ) {
    reader.next();
    left = { type: "Binary", operator: token.value, left, right: parse(reader) };
  }
  return left;
}

const parseSum: Parse = (reader) => parseBinary(reader, ["+", "-"], parseConcatenation);
const parseProduct: Parse = (reader) => parseBinary(reader, ["*", "/", "//", "%"], parsePower);
const parsePower: Parse = (reader) => parseBinary(reader, ["**"], (inner) => parseUnary(inner, true));

function parseConcatenation(reader: TokenReader): Expression {
  const parts = [parseProduct(reader)];
  while (reader.skipOperator("~")) parts.push(parseProduct(reader));
  return parts.length === 1 ? parts[0]! : { type: "Concatenation", parts };
}

function parseUnary(reader: TokenReader, withFilters: boolean): Expression {
  const sign = reader.isOperator("-") ? "-" : reader.isOperator("+") ? "+" : null;
  let value: Expression;
  if (sign === null) {
    value = parsePrimary(reader);
  } else {
    reader.next();
    value = { type: "Unary", operator: sign, operand: parseUnary(reader, false) };
  }
  value = parsePostfix(reader, value);
  return withFilters ? parseFiltersAndTests(reader, value) : value;
}

function parsePrimary(reader: TokenReader): Expression {
  const token = reader.next();
  if (token.type === "number") return { type: "Literal", value: token.value };
  if (token.type === "string") return { type: "StringLiteral", value: token.value + adjacentStrings(reader) };
  if (token.type === "name") {
    const constant = constants.get(token.value);
    return constant === undefined ? { type: "Identifier", value: token.value } : { type: "Literal", value: constant };
  }
  if (token.type === "operator" && token.value === "(") {
    const value = parseTuple(reader, parseExpression);
    reader.expectOperator(")");
    return value;
  }
  if (token.type === "operator" && token.value === "[")
    return { type: "List", items: parseItems(reader, "]", parseExpression) };
  if (token.type === "operator" && token.value === "{") {
    return { type: "Dict", entries: parseItems(reader, "}", parseEntry) };
  }
  throw new JinjaError(`unexpected ${describe(token)}`);
}

function adjacentStrings(reader: TokenReader): string {
  let text = "";
  for (let token = reader.current; token.type === "string"; token = reader.current) {
    text += token.value;
    reader.next();
  }
  return text;
}

function parseItems<Item>(reader: TokenReader, end: string, parse: (reader: TokenReader) => Item): Item[] {
  const items: Item[] = [];
  while (!reader.skipOperator(end)) {
    if (items.length > 0) reader.expectOperator(",");
    if (reader.skipOperator(end)) break;
    items.push(parse(reader));
  }
  return items;
}

function parseEntry(reader: TokenReader): readonly [Expression, Expression] {
  const key = parseExpression(reader);
  reader.expectOperator(":");
  return [key, parseExpression(reader)];
}

function parsePostfix(reader: TokenReader, start: Expression): Expression {
  let value = start;
  for (;;) {
    if (reader.skipOperator(".")) value = parseMember(reader, value);
    else if (reader.skipOperator("[")) value = parseSubscript(reader, value);
    else if (reader.isOperator("(")) value = { type: "CallExpression", callee: value, ...parseArguments(reader) };
    else return value;
  }
}

function parseMember(reader: TokenReader, object: Expression): Expression {
  const token = reader.next();
  if (token.type === "name") {
    const property: Expression = { type: "Identifier", value: token.value };
    return { type: "MemberExpression", object, property, computed: false };
  }
  if (token.type !== "number") throw new JinjaError("expected name or number");
  return { type: "MemberExpression", object, property: { type: "Literal", value: token.value }, computed: true };
}

function parseSubscript(reader: TokenReader, object: Expression): Expression {
  const items = parseItems(reader, "]", parseIndex);
  const [only] = items;
  if (only === undefined) throw new JinjaError("expected subscript expression");
  if (items.length === 1) return { type: "MemberExpression", object, property: only, computed: true };
  const property: Expression = { type: "Tuple", items: items as Expression[] };
  return { type: "MemberExpression", object, property, computed: true };
}

function parseIndex(reader: TokenReader): Expression | Slice {
  const start = reader.isOperator(":") ? null : parseExpression(reader);
  if (!reader.skipOperator(":")) return start as Expression;
  const isPartEnd = (): boolean => reader.isOperator(":", "]", ",");
  const stop = isPartEnd() ? null : parseExpression(reader);
  const step = reader.skipOperator(":") && !isPartEnd() ? parseExpression(reader) : null;
  return { type: "SliceExpression", start, stop, step };
}

export function parseArguments(reader: TokenReader): Arguments {
  const args: Expression[] = [];
  const keywords: { name: string; value: Expression }[] = [];
  let list: Expression | null = null;
  let dict: Expression | null = null;
  reader.expectOperator("(");
  for (let isFirst = true; !reader.skipOperator(")"); isFirst = false) {
    if (!isFirst) reader.expectOperator(",");
    if (reader.skipOperator(")")) break;
    if (reader.skipOperator("*")) {
      list = parseExpression(reader);
    } else if (reader.skipOperator("**")) {
      dict = parseExpression(reader);
    } else {
      const value = parseExpression(reader);
      if (reader.skipOperator("=")) {
        if (value.type !== "Identifier") throw new JinjaError("invalid syntax for function call expression");
        keywords.push({ name: value.value, value: parseExpression(reader) });
      } else {
        if (keywords.length > 0 || list !== null || dict !== null) {
          throw new JinjaError("invalid syntax for function call expression");
        }
        args.push(value);
      }
    }
  }
  return { args, keywords, list, dict };
}

function parseFiltersAndTests(reader: TokenReader, start: Expression): Expression {
  let value = start;
  for (;;) {
    if (reader.skipOperator("|")) value = { type: "FilterExpression", operand: value, filter: parseFilter(reader) };
    else if (reader.skipName("is")) value = parseTest(reader, value);
    else if (reader.isOperator("(")) value = { type: "CallExpression", callee: value, ...parseArguments(reader) };
    else return value;
  }
}

export function parseFilter(reader: TokenReader): FilterCall {
  const name = parseDottedName(reader);
  return { name, ...(reader.isOperator("(") ? parseArguments(reader) : noArguments) };
}

function parseDottedName(reader: TokenReader): string {
  let name = reader.expectName();
  while (reader.skipOperator(".")) name += `.${reader.expectName()}`;
  return name;
}

function parseTest(reader: TokenReader, operand: Expression): Expression {
  const isNegated = reader.skipName("not");
  const test: Expression = {
    type: "TestExpression",
    operand,
    test: { type: "Identifier", value: parseDottedName(reader) },
    ...parseTestArguments(reader),
  };
  return isNegated ? { type: "Unary", operator: "not", operand: test } : test;
}

function parseTestArguments(reader: TokenReader): Arguments {
  if (reader.isOperator("(")) return parseArguments(reader);
  const { type } = reader.current;
  const isOperand = type === "string" || type === "number" || reader.isOperator("[", "{");
  const isName = type === "name" && !reader.isName("else", "or", "and");
  if (!isOperand && !isName) return noArguments;
  if (reader.isName("is")) throw new JinjaError("You cannot chain multiple tests with is");
  return { ...noArguments, args: [parsePostfix(reader, parsePrimary(reader))] };
}
