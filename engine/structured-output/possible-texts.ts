/** Removes the parts of a language that no text matches. */
import { alternativesOf, literalOf } from "./expression.ts";
import type { Expression, Language } from "./expression.ts";
import { findEndingRules } from "./rule-properties.ts";

/** No text. */
export const noText: Expression = { kind: "set", set: [] };

/** The same texts, without alternatives that no text matches. Null if nothing is left. Recurses over parts. */
export function withoutImpossibleParts({ root, rules }: Language): Language | null {
  const ending = findEndingRules(rules);
  const known = new Map<Expression, Expression | null>();
  const rewrite = (expression: Expression): Expression | null => {
    let rewritten = known.get(expression);
    if (rewritten === undefined) known.set(expression, (rewritten = rewriteParts(expression, ending, rewrite)));
    return rewritten;
  };
  const possible = rewrite(root);
  if (possible === null) return null;
  const possibleRules = Array.from(rules).flatMap(([name, body]): [string, Expression][] => {
    const possibleBody = ending.has(name) ? rewrite(body) : null;
    return possibleBody === null ? [] : [[name, possibleBody]];
  });
  return { root: possible, rules: new Map(possibleRules) };
}

function rewriteParts(
  expression: Expression,
  ending: ReadonlySet<string>,
  rewrite: (part: Expression) => Expression | null,
): Expression | null {
  switch (expression.kind) {
    case "set":
      return expression.set.length === 0 ? null : expression;
    case "words":
      return expression;
    case "rule":
      return ending.has(expression.name) ? expression : null;
    case "sequence": {
      const parts = expression.parts.map(rewrite);
      return parts.includes(null) ? null : { kind: "sequence", parts: parts as Expression[] };
    }
    case "alternatives": {
      const options = expression.options.map(rewrite).filter((option) => option !== null);
      return options.length === 0 ? null : alternativesOf(options);
    }
    case "repetition": {
      const part = rewrite(expression.part);
      if (part !== null) return { ...expression, part };
      return expression.min === 0 ? literalOf("") : null;
    }
    case "limited": {
      const part = rewrite(expression.part);
      return part === null ? null : { ...expression, part };
    }
    default:
      return expression satisfies never;
  }
}
