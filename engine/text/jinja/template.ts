/**
 * Jinja templates as transformers evaluates them: Jinja 3.1 in its sandbox with `trim_blocks`, `lstrip_blocks`, loop
 * controls, the `generation` tag and its own `tojson`. Other templates cannot be included.
 */
import { callValue, evaluate, evaluateFilter, Scope } from "./evaluate.ts";
import { functions } from "./functions.ts";
import { parseTemplate } from "./parse-template.ts";
import type { FilterCall, Parameters, Statement, Target } from "./syntax.ts";
import {
  areEqual,
  asText,
  Callable,
  isTrue,
  itemsOf,
  JinjaError,
  Namespace,
  toValue,
  Tuple,
  Undefined,
} from "./values.ts";
import type { Value } from "./values.ts";

export class JinjaTemplate {
  readonly body: readonly Statement[];

  /** @throws JinjaError for a template that is not valid. */
  constructor(source: string) {
    this.body = parseTemplate(source);
  }

  /**
   * @param variables Plain data, as in JSON, and `Callable` functions.
   * @throws JinjaError where Jinja or Python would fail.
   */
  render(variables: Readonly<Record<string, unknown>>): string {
    const globals = new Scope(null);
    for (const [name, value] of functions) globals.set(name, value);
    const scope = new Scope(globals);
    for (const [name, value] of Object.entries(variables)) if (value !== undefined) scope.set(name, toValue(value));
    const output: string[] = [];
    renderBody(this.body, scope, output);
    return output.join("");
  }
}

/** Thrown by `break` and `continue`. */
class LoopExit extends Error {
  readonly isBreak: boolean;
  constructor(isBreak: boolean) {
    super("a loop ends");
    this.isBreak = isBreak;
  }
}

type ForLoop = Statement & { type: "For" };
type SetStatement = Statement & { type: "Set" };

/** Appends to `output`, piece by piece. */
function renderBody(body: readonly Statement[], scope: Scope, output: string[]): void {
  for (const statement of body) renderStatement(statement, scope, output);
}

function renderText(body: readonly Statement[], scope: Scope): string {
  const output: string[] = [];
  renderBody(body, scope, output);
  return output.join("");
}

function renderStatement(node: Statement, scope: Scope, output: string[]): void {
  switch (node.type) {
    case "Text":
      output.push(node.text);
      break;
    case "Output":
      output.push(asText(evaluate(node.value, scope)));
      break;
    case "If":
      renderBody(isTrue(evaluate(node.condition, scope)) ? node.body : node.alternate, scope, output);
      break;
    case "For":
      renderFor(node, evaluate(node.iterable, scope), scope, output, 1);
      break;
    case "Set":
      renderSet(node, scope);
      break;
    case "SetBlock":
      assign(node.assignee, filtered(node.filters, renderText(node.body, new Scope(scope)), scope), scope);
      break;
    case "FilterBlock":
      output.push(asText(filtered(node.filters, renderText(node.body, new Scope(scope)), scope)));
      break;
    case "Macro":
      scope.set(node.name.value, createMacro(node.name.value, node, node.body, scope));
      break;
    case "Call": {
      if (node.call.type !== "CallExpression") throw new JinjaError("expected call");
      const caller = createMacro("caller", node, node.body, scope);
      output.push(asText(callValue(evaluate(node.call.callee, scope), node.call, scope, [["caller", caller]])));
      break;
    }
    case "With": {
      const inner = new Scope(scope);
      for (const { assignee, value } of node.assignments) assign(assignee, evaluate(value, inner), inner);
      renderBody(node.body, inner, output);
      break;
    }
    case "Break":
    case "Continue":
      throw new LoopExit(node.type === "Break");
  }
}

function renderSet({ assignee, value }: SetStatement, scope: Scope): void {
  assign(assignee, evaluate(value, scope), scope);
}

function filtered(filters: readonly FilterCall[], text: string, scope: Scope): Value {
  return filters.reduce<Value>((value, filter) => evaluateFilter(filter, value, scope), text);
}

function assign(target: Target, value: Value, scope: Scope): void {
  if (target.type === "Identifier") {
    scope.set(target.value, value);
  } else if (target.type === "NamespaceMember") {
    const object = scope.get(target.object);
    if (!(object instanceof Namespace)) throw new JinjaError("cannot assign attribute on non-namespace object");
    object.members.set(target.member, value);
  } else {
    const items = itemsOf(value);
    if (items.length !== target.items.length) {
      throw new JinjaError(`expected ${target.items.length} values to unpack, got ${items.length}`);
    }
    for (const [index, item] of target.items.entries()) assign(item, items[index]!, scope);
  }
}

/** Each iteration has variables of its own: one that is set in it is unknown in the next. */
function renderFor(node: ForLoop, iterable: Value, scope: Scope, output: string[], depth: number): void {
  const items = node.condition === null ? itemsOf(iterable) : selected(node, itemsOf(iterable), scope);
  // As in Jinja, an iteration that `continue` or `break` ends does not keep the loop from its else.
  let hasRunToEnd = false;
  const recurse = new Callable("loop", ([inner = null]) => {
    if (!node.isRecursive) throw new JinjaError("The loop must have the 'recursive' marker to be called recursively.");
    const text: string[] = [];
    renderFor(node, inner, scope, text, depth + 1);
    return text.join("");
  });
  const loop = createLoop(items, depth, recurse);
  for (const [index, item] of items.entries()) {
    const inner = new Scope(scope);
    inner.set("loop", loop.at(index));
    assign(node.loopvar, item, inner);
    try {
      renderBody(node.body, inner, output);
      hasRunToEnd = true;
    } catch (error) {
      if (!(error instanceof LoopExit)) throw error;
      if (error.isBreak) break;
    }
  }
  if (!hasRunToEnd) renderBody(node.alternate, new Scope(scope), output);
}

function selected({ condition, loopvar }: ForLoop, items: readonly Value[], scope: Scope): readonly Value[] {
  return items.filter((item) => {
    const inner = new Scope(scope);
    assign(loopvar, item, inner);
    return condition === null || isTrue(evaluate(condition, inner));
  });
}

/** A macro sees the variables where it is defined, not those where it is called. */
function createMacro(
  name: string,
  { args: names, defaults }: Parameters,
  body: readonly Statement[],
  scope: Scope,
): Callable {
  const numRequired = names.length - defaults.length;
  return new Callable(name, (args, keywords) => {
    const inner = new Scope(scope);
    const others = new Map(keywords);
    for (const [index, parameter] of names.entries()) {
      const byName = others.get(parameter.value);
      others.delete(parameter.value);
      const given = index < args.length ? args[index] : byName;
      if (given !== undefined) inner.set(parameter.value, given);
      else if (index < numRequired) inner.set(parameter.value, new Undefined(`parameter '${parameter.value}'`));
      else inner.set(parameter.value, evaluate(defaults[index - numRequired]!, inner));
    }
    const caller = others.get("caller");
    if (caller !== undefined) inner.set("caller", caller);
    others.delete("caller");
    inner.set("varargs", new Tuple(args.slice(names.length)));
    inner.set("kwargs", others);
    if (args.length > names.length && !mentions(body, "varargs")) {
      throw new JinjaError(`macro '${name}' takes not more than ${names.length} argument(s)`);
    }
    const [extra] = others.keys();
    if (extra !== undefined && !mentions(body, "kwargs")) {
      throw new JinjaError(`macro '${name}' takes no keyword argument '${extra}'`);
    }
    return renderText(body, inner);
  });
}

function mentions(node: unknown, name: string): boolean {
  if (typeof node !== "object" || node === null) return false;
  if ("type" in node && node.type === "Identifier" && "value" in node && node.value === name) return true;
  return Object.values(node).some((child) => mentions(child, name));
}

/** The variable `loop` of each iteration. Calls of `changed` compare with the iteration before, so the loop's iterations share what they saw. */
function createLoop(
  items: readonly Value[],
  depth: number,
  recurse: Callable,
): { readonly at: (index: number) => Namespace } {
  let lastSeen: readonly Value[] | null = null;
  const changed = new Callable("changed", (values) => {
    const isSame = lastSeen !== null && areEqual(lastSeen, values);
    lastSeen = values;
    return !isSame;
  });
  const { length } = items;
  const at = (index: number): Namespace => {
    const cycle = new Callable("cycle", (values) => {
      if (values.length === 0) throw new JinjaError("no items for cycling given");
      return values[index % values.length]!;
    });
    const members = new Map<string, Value>([
      ["index", index + 1],
      ["index0", index],
      ["revindex", length - index],
      ["revindex0", length - index - 1],
      ["first", index === 0],
      ["last", index === length - 1],
      ["length", length],
      ["previtem", index > 0 ? items[index - 1]! : new Undefined("'loop.previtem'")],
      ["nextitem", index + 1 < length ? items[index + 1]! : new Undefined("'loop.nextitem'")],
      ["depth", depth],
      ["depth0", depth - 1],
      ["cycle", cycle],
      ["changed", changed],
    ]);
    return new Namespace(members, recurse);
  };
  return { at };
}
