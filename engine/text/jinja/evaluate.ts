/** Evaluates the expressions of a template with the variables that it sees. */
import { applyFilter } from "./filters.ts";
import { applyBinary, applyComparison, applyUnary, itemAt, memberAt, trySlice } from "./operators.ts";
import type { Arguments, Expression, FilterCall, Slice } from "./syntax.ts";
import { applyTest } from "./tests.ts";
import {
  asText,
  Callable,
  dictKey,
  isDict,
  isTrue,
  itemsOf,
  JinjaError,
  Namespace,
  Tuple,
  typeName,
  Undefined,
} from "./values.ts";
import type { Dict, Value } from "./values.ts";

/** The variables that a part of a template sees. */
export class Scope {
  readonly #variables = new Map<string, Value>();
  readonly #parent: Scope | null;

  constructor(parent: Scope | null) {
    this.#parent = parent;
  }

  get(name: string): Value {
    const value = this.#variables.get(name);
    if (value !== undefined) return value;
    return this.#parent === null ? new Undefined(`'${name}'`) : this.#parent.get(name);
  }

  set(name: string, value: Value): void {
    this.#variables.set(name, value);
  }
}

export function evaluate(node: Expression, scope: Scope): Value {
  switch (node.type) {
    case "Literal":
    case "StringLiteral":
      return node.value;
    case "Identifier":
      return scope.get(node.value);
    case "List":
      return node.items.map((item) => evaluate(item, scope));
    case "Tuple":
      return new Tuple(node.items.map((item) => evaluate(item, scope)));
    case "Dict": {
      const dict: Dict = new Map();
      for (const [key, value] of node.entries) dict.set(dictKey(evaluate(key, scope)), evaluate(value, scope));
      return dict;
    }
    case "MemberExpression":
      return evaluateMember(node, scope);
    case "CallExpression":
      return callValue(evaluate(node.callee, scope), node, scope);
    case "FilterExpression":
      return evaluateFilter(node.filter, evaluate(node.operand, scope), scope);
    case "TestExpression": {
      const { args } = evaluateArguments(node, scope);
      return applyTest(node.test.value, evaluate(node.operand, scope), args);
    }
    case "Unary": {
      const operand = evaluate(node.operand, scope);
      return node.operator === "not" ? !isTrue(operand) : applyUnary(node.operator, operand);
    }
    case "Binary":
      return evaluateBinary(node, scope);
    case "Comparison":
      return evaluateComparison(node, scope);
    case "Concatenation":
      return node.parts.map((part) => asText(evaluate(part, scope))).join("");
    case "Ternary":
      if (isTrue(evaluate(node.condition, scope))) return evaluate(node.trueExpr, scope);
      return node.falseExpr === null
        ? new Undefined("the value of an if without else")
        : evaluate(node.falseExpr, scope);
  }
}

function evaluateMember(node: Expression & { type: "MemberExpression" }, scope: Scope): Value {
  const object = evaluate(node.object, scope);
  const { property } = node;
  if (property.type === "SliceExpression") return evaluateSlice(object, property, scope);
  if (!node.computed && property.type === "Identifier") return memberAt(object, property.value);
  return itemAt(object, evaluate(property, scope));
}

function evaluateSlice(object: Value, { start, stop, step }: Slice, scope: Scope): Value {
  if (object instanceof Undefined) throw object.error();
  const bound = (expression: Expression | null): Value => (expression === null ? null : evaluate(expression, scope));
  return trySlice(object, [bound(start), bound(stop), bound(step)]) ?? new Undefined(`a slice of ${typeName(object)}`);
}

function evaluateBinary({ operator, left, right }: Expression & { type: "Binary" }, scope: Scope): Value {
  const value = evaluate(left, scope);
  if (operator === "and") return isTrue(value) ? evaluate(right, scope) : value;
  if (operator === "or") return isTrue(value) ? value : evaluate(right, scope);
  return applyBinary(operator, value, evaluate(right, scope));
}

function evaluateComparison({ first, rest }: Expression & { type: "Comparison" }, scope: Scope): boolean {
  let left = evaluate(first, scope);
  for (const { operator, operand } of rest) {
    const right = evaluate(operand, scope);
    if (!applyComparison(operator, left, right)) return false;
    left = right;
  }
  return true;
}

export function evaluateFilter(filter: FilterCall, value: Value, scope: Scope): Value {
  const { args, keywords } = evaluateArguments(filter, scope);
  return applyFilter(filter.name, value, args, keywords);
}

/** `further` are keyword arguments that the template does not write. */
export function callValue(
  callee: Value,
  given: Arguments,
  scope: Scope,
  further: readonly (readonly [string, Value])[] = [],
): Value {
  if (callee instanceof Undefined) throw callee.error();
  const callable = callee instanceof Namespace ? callee.callable : callee;
  if (!(callable instanceof Callable)) throw new JinjaError(`'${typeName(callee)}' object is not callable`);
  const { args, keywords } = evaluateArguments(given, scope);
  for (const [name, value] of further) keywords.set(name, value);
  return callable.call(args, keywords);
}

function evaluateArguments(
  given: Arguments,
  scope: Scope,
): { readonly args: readonly Value[]; readonly keywords: Map<string, Value> } {
  const args = given.args.map((argument) => evaluate(argument, scope));
  const keywords = new Map(given.keywords.map(({ name, value }) => [name, evaluate(value, scope)]));
  if (given.dict !== null) {
    const dict = evaluate(given.dict, scope);
    if (!isDict(dict)) throw new JinjaError(`argument after ** must be a mapping, not ${typeName(dict)}`);
    for (const [key, value] of dict) keywords.set(asText(key as Value), value);
  }
  return { args: given.list === null ? args : [...args, ...itemsOf(evaluate(given.list, scope))], keywords };
}
