/** Parses a template: Jinja 3.1 with `break`, `continue` and the `generation` tag of transformers. */
import { tokenize } from "./lexer.ts";
import { parseArguments, parseExpression, parseFilter, parseOr, parseTuple } from "./parse-expression.ts";
import type { Expression, FilterCall, Name, Parameters, Statement, Target } from "./syntax.ts";
import { describe, TokenReader } from "./token-reader.ts";
import { JinjaError } from "./values.ts";

/** @throws JinjaError for a template that Jinja rejects, or that uses other templates. */
export function parseTemplate(source: string): readonly Statement[] {
  const reader = new TokenReader(tokenize(source));
  const body = parseBody(reader, []);
  if (reader.current.type !== "end") throw new JinjaError(`unexpected ${describe(reader.current)}`);
  return body;
}

/** The statements up to a tag with one of these names, which is not consumed. */
function parseBody(reader: TokenReader, ends: readonly string[]): Statement[] {
  const statements: Statement[] = [];
  while (!reader.isBlock(...ends)) {
    const token = reader.next();
    if (token.type === "text") {
      statements.push({ type: "Text", text: token.value });
    } else if (token.type === "begin output") {
      statements.push({ type: "Output", value: parseTuple(reader, parseExpression) });
      reader.expect("end output");
    } else if (token.type === "begin block") {
      statements.push(parseStatement(reader));
    } else if (ends.length === 0) {
      return statements;
    } else {
      throw new JinjaError(`unexpected end of template: expected ${ends.join(" or ")}`);
    }
  }
  return statements;
}

/** Reads `{% name`, whose name is known. */
function skipTagName(reader: TokenReader): string {
  reader.next();
  return reader.expectName();
}

/** The rest of a tag, the statements after it, and the tag that ends them. */
function parseBlock(reader: TokenReader, end: string): Statement[] {
  reader.expect("end block");
  const body = parseBody(reader, [end]);
  skipTagName(reader);
  reader.expect("end block");
  return body;
}

function parseStatement(reader: TokenReader): Statement {
  const name = reader.expectName();
  switch (name) {
    case "if":
      return parseIf(reader);
    case "for":
      return parseFor(reader);
    case "set":
      return parseSet(reader);
    case "macro": {
      const macro: Name = { type: "Identifier", value: reader.expectName() };
      return { type: "Macro", name: macro, ...parseParameters(reader), body: parseBlock(reader, "endmacro") };
    }
    case "call": {
      const parameters = reader.isOperator("(") ? parseParameters(reader) : { args: [], defaults: [] };
      const call = parseExpression(reader);
      if (call.type !== "CallExpression") throw new JinjaError("expected call");
      return { type: "Call", ...parameters, call, body: parseBlock(reader, "endcall") };
    }
    case "filter":
      return { type: "FilterBlock", filters: parseFilters(reader), body: parseBlock(reader, "endfilter") };
    case "with":
      return parseWith(reader);
    case "generation":
      return { type: "With", assignments: [], body: parseBlock(reader, "endgeneration") };
    case "break":
    case "continue":
      reader.expect("end block");
      return { type: name === "break" ? "Break" : "Continue" };
    default:
      throw new JinjaError(`unknown tag '${name}'`);
  }
}

function parseIf(reader: TokenReader): Statement {
  const condition = parseTuple(reader, parseOr);
  reader.expect("end block");
  const body = parseBody(reader, ["elif", "else", "endif"]);
  const next = skipTagName(reader);
  if (next === "elif") return { type: "If", condition, body, alternate: [parseIf(reader)] };
  if (next === "else") return { type: "If", condition, body, alternate: parseBlock(reader, "endif") };
  reader.expect("end block");
  return { type: "If", condition, body, alternate: [] };
}

function parseFor(reader: TokenReader): Statement {
  const loopvar = parseTarget(reader);
  reader.expectName("in");
  const iterable = parseTuple(reader, parseOr);
  const condition = reader.skipName("if") ? parseExpression(reader) : null;
  const isRecursive = reader.skipName("recursive");
  reader.expect("end block");
  const body = parseBody(reader, ["else", "endfor"]);
  const next = skipTagName(reader);
  const alternate = next === "else" ? parseBlock(reader, "endfor") : [];
  if (next !== "else") reader.expect("end block");
  return { type: "For", loopvar, iterable, condition, isRecursive, body, alternate };
}

function parseSet(reader: TokenReader): Statement {
  const assignee = parseTarget(reader);
  if (reader.skipOperator("=")) {
    const value = parseTuple(reader, parseExpression);
    reader.expect("end block");
    return { type: "Set", assignee, value };
  }
  const filters: FilterCall[] = reader.skipOperator("|") ? parseFilters(reader) : [];
  return { type: "SetBlock", assignee, filters, body: parseBlock(reader, "endset") };
}

function parseFilters(reader: TokenReader): FilterCall[] {
  const filters = [parseFilter(reader)];
  while (reader.skipOperator("|")) filters.push(parseFilter(reader));
  return filters;
}

function parseWith(reader: TokenReader): Statement {
  const assignments: { assignee: Target; value: Expression }[] = [];
  while (reader.current.type !== "end block") {
    if (assignments.length > 0) reader.expectOperator(",");
    const assignee = parseTarget(reader);
    reader.expectOperator("=");
    assignments.push({ assignee, value: parseExpression(reader) });
  }
  return { type: "With", assignments, body: parseBlock(reader, "endwith") };
}

function parseTarget(reader: TokenReader): Target {
  const items: Target[] = [];
  for (;;) {
    items.push(parseSingleTarget(reader));
    if (!reader.skipOperator(",")) break;
    if (reader.isName("in") || reader.isOperator("=", ")")) return { type: "Targets", items };
  }
  return items.length === 1 ? items[0]! : { type: "Targets", items };
}

function parseSingleTarget(reader: TokenReader): Target {
  if (reader.skipOperator("(")) {
    const target = parseTarget(reader);
    reader.expectOperator(")");
    return target;
  }
  const value = reader.expectName();
  if (!reader.skipOperator(".")) return { type: "Identifier", value };
  return { type: "NamespaceMember", object: value, member: reader.expectName() };
}

function parseParameters(reader: TokenReader): Parameters {
  const { args, keywords, list, dict } = parseArguments(reader);
  if (list !== null || dict !== null) throw new JinjaError("a macro's parameters are names");
  const names = args.map((parameter): Name => {
    if (parameter.type !== "Identifier") throw new JinjaError("a macro's parameters are names");
    return parameter;
  });
  const optional = keywords.map(({ name }): Name => ({ type: "Identifier", value: name }));
  return { args: [...names, ...optional], defaults: keywords.map(({ value }) => value) };
}
