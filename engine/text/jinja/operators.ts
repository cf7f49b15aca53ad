/** Operators, subscripts and members of values with Python's rules. */
import { tryMethod } from "./methods.ts";
import {
  areEqual,
  asText,
  compare,
  dictKey,
  Float,
  isDict,
  isList,
  itemsOf,
  JinjaError,
  Lazy,
  Namespace,
  represent,
  tryItems,
  tryNumber,
  Tuple,
  typeName,
  Undefined,
} from "./values.ts";
import type { Value } from "./values.ts";

/** Characters of a repeated text or items of a repeated list. */
const MAX_REPEATED = 2 ** 24;

export function applyBinary(operator: string, left: Value, right: Value): Value {
  if (left instanceof Undefined) throw left.error();
  if (right instanceof Undefined && !(operator === "%" && typeof left === "string")) throw right.error();
  const [a, b] = [tryNumber(left), tryNumber(right)];
  if (a !== null && b !== null) {
    const isFloat = left instanceof Float || right instanceof Float;
    return arithmetic(operator, a, b, isFloat);
  }
  if (operator === "+") return add(left, right);
  if (operator === "*") {
    if (typeof right === "number") return repeat(left, right);
    if (typeof left === "number") return repeat(right, left);
  }
  if (operator === "%" && typeof left === "string") {
    return formatPercent(left, right instanceof Tuple ? right.items : [right]);
  }
  throw unsupported(operator, left, right);
}

function unsupported(operator: string, left: Value, right: Value): JinjaError {
  if (operator === "+" && typeof left === "string") {
    return new JinjaError(`can only concatenate str (not "${typeName(right)}") to str`);
  }
  return new JinjaError(`unsupported operand type(s) for ${operator}: '${typeName(left)}' and '${typeName(right)}'`);
}

function arithmetic(operator: string, a: number, b: number, isFloat: boolean): Value {
  const number = (value: number): Value => (isFloat ? new Float(value) : value);
  const isDivision = operator === "/" || operator === "//" || operator === "%";
  if (isDivision && b === 0) throw new JinjaError("division by zero");
  switch (operator) {
    case "+":
      return number(a + b);
    case "-":
      return number(a - b);
    case "*":
      return number(a * b);
    case "/":
      return new Float(a / b);
    case "//":
      return number(Math.floor(a / b));
    case "%":
      return number(a - b * Math.floor(a / b));
    case "**":
      return isFloat || b < 0 ? new Float(a ** b) : a ** b;
    default:
      throw new JinjaError(`unknown operator ${operator}`);
  }
}

function add(left: Value, right: Value): Value {
  if (typeof left === "string" && typeof right === "string") return left + right;
  if (isList(left) && isList(right)) return [...left, ...right];
  if (left instanceof Tuple && right instanceof Tuple) return new Tuple([...left.items, ...right.items]);
  throw unsupported("+", left, right);
}

function repeat(value: Value, count: number): Value {
  const times = Math.max(0, count);
  const { length } = typeof value === "string" ? value : (tryItems(value) ?? []);
  if (length * times > MAX_REPEATED)
    throw new JinjaError(`a repetition has more than ${MAX_REPEATED} characters or items`);
  if (typeof value === "string") return value.repeat(times);
  if (isList(value)) return Array.from({ length: times }, () => value).flat();
  if (value instanceof Tuple) return new Tuple(Array.from({ length: times }, () => value.items).flat());
  throw unsupported("*", value, count);
}

export function applyUnary(operator: "-" | "+", operand: Value): Value {
  if (operand instanceof Undefined) throw operand.error();
  const number = tryNumber(operand);
  if (number === null) throw new JinjaError(`bad operand type for unary ${operator}: '${typeName(operand)}'`);
  const value = operator === "-" ? 0 - number : number;
  return operand instanceof Float ? new Float(value) : value;
}

export function applyComparison(operator: string, left: Value, right: Value): boolean {
  switch (operator) {
    case "==":
      return areEqual(left, right);
    case "!=":
      return !areEqual(left, right);
    case "<":
      return compare(left, right) < 0;
    case "<=":
      return compare(left, right) <= 0;
    case ">":
      return compare(left, right) > 0;
    case ">=":
      return compare(left, right) >= 0;
    case "in":
      return isIn(left, right);
    case "not in":
      return !isIn(left, right);
    default:
      throw new JinjaError(`unknown operator ${operator}`);
  }
}

export function isIn(item: Value, container: Value): boolean {
  if (typeof container === "string") {
    if (typeof item !== "string") {
      throw new JinjaError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
    }
    return container.includes(item);
  }
  if (isDict(container)) return container.has(dictKey(item));
  const items = tryItems(container);
  if (items === null) throw new JinjaError(`argument of type '${typeName(container)}' is not iterable`);
  return items.some((each) => areEqual(each, item));
}

/** The item of a subscript; undefined where Python raises TypeError, KeyError or IndexError. */
function tryItem(object: Value, index: Value): Value | undefined {
  if (isDict(object)) {
    const isKey = !isList(index) && !isDict(index) && !(index instanceof Undefined);
    return isKey ? object.get(dictKey(index)) : undefined;
  }
  const position = typeof index === "boolean" ? Number(index) : index;
  if (typeof position !== "number" || object instanceof Lazy || object instanceof Undefined) return undefined;
  if (typeof object !== "string" && !isList(object) && !(object instanceof Tuple)) return undefined;
  return itemsOf(object).at(position);
}

/** `object[start:stop:step]`; undefined for what has no slices. */
export function trySlice(object: Value, bounds: readonly [Value, Value, Value]): Value | undefined {
  if (typeof object !== "string" && !isList(object) && !(object instanceof Tuple)) return undefined;
  const items = itemsOf(object);
  const [start, stop, step] = bounds.map(sliceBound);
  const size = step ?? 1;
  if (size === 0) throw new JinjaError("slice step cannot be zero");
  const [lowest, highest] = size > 0 ? [0, items.length] : [-1, items.length - 1];
  const clamped = (bound: number): number =>
    Math.min(Math.max(bound < 0 ? bound + items.length : bound, lowest), highest);
  const from = start === null || start === undefined ? (size > 0 ? lowest : highest) : clamped(start);
  const to = stop === null || stop === undefined ? (size > 0 ? highest : lowest) : clamped(stop);
  const taken: Value[] = [];
  for (let index = from; size > 0 ? index < to : index > to; index += size) taken.push(items[index]!);
  if (typeof object === "string") return taken.map(asText).join("");
  return isList(object) ? taken : new Tuple(taken);
}

function sliceBound(bound: Value): number | null {
  if (bound === null) return null;
  if (typeof bound === "number" || typeof bound === "boolean") return Number(bound);
  throw new JinjaError("slice indices must be integers or None or have an __index__ method");
}

const conversion = /%(?<flags>[-0]*)(?<width>\d+)?(?:\.(?<precision>\d+))?(?<type>[sdirfx%])/g;

/** Python's `%` of a string, with the common conversions. */
export function formatPercent(text: string, values: readonly Value[]): string {
  let numUsed = 0;
  const result = text.replace(conversion, (...match: unknown[]) => {
    const { flags = "", width = "0", precision, type = "" } = match.at(-1) as Record<string, string | undefined>;
    if (type === "%") return "%";
    const value = values[numUsed++];
    if (value === undefined) throw new JinjaError("not enough arguments for format string");
    const converted = convert(type, value, precision);
    if (flags.includes("-")) return converted.padEnd(Number(width));
    return converted.padStart(Number(width), flags.includes("0") && type !== "s" ? "0" : " ");
  });
  if (numUsed < values.length && !isDict(values[0] ?? null)) {
    throw new JinjaError("not all arguments converted during string formatting");
  }
  return result;
}

function convert(type: string, value: Value, precision: string | undefined): string {
  if (type === "s") return asText(value);
  if (type === "r") return represent(value);
  const number = tryNumber(value);
  if (number === null) throw new JinjaError(`%${type} format: a number is required, not ${typeName(value)}`);
  if (type === "f") return number.toFixed(precision === undefined ? 6 : Number(precision));
  return Math.trunc(number).toString(type === "x" ? 16 : 10);
}

/** `value.name`: a method comes before an item of that name, as in Jinja. */
export function memberAt(value: Value, name: string): Value {
  if (value instanceof Undefined) throw value.error();
  const attribute = tryAttribute(value, name);
  const member = attribute === undefined ? tryItem(value, name) : attribute;
  return member === undefined ? new Undefined(`'${name}'`) : member;
}

/** `value[index]`: an item comes before a method of that name. */
export function itemAt(value: Value, index: Value): Value {
  if (value instanceof Undefined) throw value.error();
  const item = tryItem(value, index);
  if (item !== undefined) return item;
  const member = typeof index === "string" ? tryAttribute(value, index) : undefined;
  return member === undefined ? new Undefined(`an item of '${typeof index === "string" ? index : "a value"}'`) : member;
}

/** The method, or the member of a namespace; undefined if there is none. */
export function tryAttribute(value: Value, name: string): Value | undefined {
  return value instanceof Namespace ? value.members.get(name) : (tryMethod(value, name) ?? undefined);
}

/** The attribute of a filter: names and indexes with dots between them. */
export function attribute(value: Value, path: Value): Value {
  if (typeof path !== "string") return itemAt(value, path);
  let member = value;
  for (const part of path.split(".")) member = itemAt(member, /^\d+$/.test(part) ? Number(part) : part);
  return member;
}
