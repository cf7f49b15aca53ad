/**
 * Makes @huggingface/jinja evaluate a parsed template like Jinja where templates of the hub notice the difference:
 * values that are printed as text, `strip` with characters, and loops over something undefined.
 */
import { asNode, descendants, nameOf } from "./content-format.ts";
import type { SyntaxNode } from "./content-format.ts";

const asTextName = "as text";
const stripName = (method: string): string => `${method} characters`;

/** Variables of a rewritten template. No template can spell these names, because they contain a space. */
export const jinjaFunctions: Readonly<Record<string, (...values: unknown[]) => string>> = {
  [asTextName]: asText,
  [stripName("strip")]: (text, characters) => strip(text, characters, { left: true, right: true }),
  [stripName("lstrip")]: (text, characters) => strip(text, characters, { left: true, right: false }),
  [stripName("rstrip")]: (text, characters) => strip(text, characters, { left: false, right: true }),
};

/** Changes the syntax tree in place. It must then be rendered with `jinjaFunctions`. */
export function rewriteLikeJinja(program: object): void {
  const nodes = [...descendants(program)];
  for (const node of nodes) Object.assign(node, changedFields(node));
}

/** Filters for which Jinja makes a text of any value. */
const textFilters: ReadonlySet<string | null> = new Set([
  "capitalize",
  "lower",
  "replace",
  "string",
  "title",
  "trim",
  "upper",
]);

function changedFields(node: SyntaxNode): object {
  switch (node.type) {
    case "FilterExpression": {
      const filter = asNode(node.filter);
      const name = nameOf(filter?.type === "CallExpression" ? filter.callee : filter);
      return textFilters.has(name) ? { operand: textOf(node.operand) } : {};
    }
    case "BinaryExpression": {
      const { operator, left, right } = node;
      return isConcatenation(operator) ? { left: textOf(left), right: textOf(right) } : {};
    }
    case "CallExpression": {
      const callee = asNode(node.callee);
      const args = Array.isArray(node.args) ? node.args : [];
      if (callee?.type !== "MemberExpression" || callee.computed === true || args.length !== 1) return {};
      const name = stripName(nameOf(callee.property) ?? "");
      return Object.hasOwn(jinjaFunctions, name) ? call(name, callee.object, ...args) : {};
    }
    case "For": {
      const iterable = asNode(node.iterable);
      return iterable?.type === "SelectExpression"
        ? { iterable: { ...iterable, lhs: orNothing(iterable.lhs) } }
        : { iterable: orNothing(iterable) };
    }
    default:
      return {};
  }
}

function call(name: string, ...args: unknown[]): SyntaxNode {
  return { type: "CallExpression", callee: { type: "Identifier", value: name }, args };
}

/** In a list, the function gets the library's own value, in which None and something undefined differ. */
function textOf(value: unknown): SyntaxNode {
  return call(asTextName, { type: "ArrayLiteral", value: [value] });
}

/** `value | default([])` */
function orNothing(value: unknown): SyntaxNode {
  const filter = call("default", { type: "ArrayLiteral", value: [] });
  return { type: "FilterExpression", operand: value, filter };
}

function isConcatenation(operator: unknown): boolean {
  return typeof operator === "object" && operator !== null && "value" in operator && operator.value === "~";
}

/** A value of the library. Those of lists and objects contain others. */
interface RuntimeValue {
  readonly type: string;
  readonly value: unknown;
}

/** Python's `str` of the only element of a list. */
function asText(list: unknown): string {
  const [only] = list as [RuntimeValue];
  if (only.type === "UndefinedValue") return "";
  return typeof only.value === "string" ? only.value : representation(only);
}

/** Python's `repr`. */
function representation({ value }: RuntimeValue): string {
  if (value === undefined || value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return quoted(value);
  if (Array.isArray(value)) return `[${(value as RuntimeValue[]).map(representation).join(", ")}]`;
  if (value instanceof Map) {
    const members = Array.from(value as Map<string, RuntimeValue>, ([name, member]) => {
      return `${quoted(name)}: ${representation(member)}`;
    });
    return `{${members.join(", ")}}`;
  }
  return JSON.stringify(value) ?? "";
}

function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escapes = new Map([
    ["\\", "\\\\"],
    ["\n", "\\n"],
    ["\r", "\\r"],
    ["\t", "\\t"],
    [quote, `\\${quote}`],
  ]);
  return quote + text.replace(/[\\\n\r\t'"]/g, (character) => escapes.get(character) ?? character) + quote;
}

function strip(
  text: unknown,
  characters: unknown,
  { left, right }: { readonly left: boolean; readonly right: boolean },
): string {
  if (typeof text !== "string" || typeof characters !== "string") {
    throw new TypeError("strip, lstrip and rstrip are methods of a string, with a string of characters");
  }
  const stripped = new Set(characters);
  const start = left ? startOfRest(text, stripped) : 0;
  return text.slice(start, right ? endOfRest(text, stripped, start) : text.length);
}

function startOfRest(text: string, stripped: ReadonlySet<string>): number {
  let start = 0;
  for (const character of text) {
    if (!stripped.has(character)) break;
    start += character.length;
  }
  return start;
}

function endOfRest(text: string, stripped: ReadonlySet<string>, start: number): number {
  let end = text.length;
  while (end > start) {
    const pair = text.slice(end - 2, end);
    const last = pair.length === 2 && pair.codePointAt(0)! > 0xffff ? pair : text.slice(end - 1, end);
    if (!stripped.has(last)) break;
    end -= last.length;
  }
  return end;
}
