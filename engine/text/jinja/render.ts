/** Renders the statements of a template into a text. */
import { callValue, evaluate, evaluateFilter } from "./evaluate.ts";
import { createLoop } from "./loop.ts";
import { Scope } from "./scope.ts";
import type { FilterCall, Parameters, Statement, Target } from "./syntax.ts";
import { asText, Callable, isTrue, itemsOf, JinjaError, Namespace, Tuple, Undefined } from "./values.ts";
import type { Value } from "./values.ts";

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
export function renderBody(body: readonly Statement[], scope: Scope, output: string[]): void {
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
