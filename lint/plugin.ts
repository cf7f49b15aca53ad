/** Lint rules of this repository. */
import type { RuleTester } from "oxlint/plugins-dev";

// oxlint exports the types of rules and nodes only as parts of this one.
type Rule = Extract<Parameters<RuleTester["run"]>[1], { readonly create: unknown }>;
type VariableDeclaration = Parameters<NonNullable<ReturnType<Rule["create"]>["VariableDeclaration"]>>[0];
type ImportDeclaration = Parameters<NonNullable<ReturnType<Rule["create"]>["ImportDeclaration"]>>[0];
type Expression = NonNullable<VariableDeclaration["declarations"][number]["init"]>;

type Certainty = "number" | "other" | "unknown";

/** Operators whose result is a number whatever the operands are; `+` also joins texts. */
const numericOperators: ReadonlySet<string> = new Set(["-", "*", "/", "%", "**", "<<", ">>", ">>>", "|", "&", "^"]);
const upperSnakeCase = /^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$/;
const camelCase = /^[a-z][a-zA-Z0-9]*$/;

/** Expressions whose value is never a number. */
const otherTypes: ReadonlySet<string> = new Set([
  "ArrayExpression",
  "ArrowFunctionExpression",
  "ClassExpression",
  "FunctionExpression",
  "NewExpression",
  "ObjectExpression",
  "TemplateLiteral",
]);

/** Whether the value of an expression is a number, as far as its syntax tells. */
function kindOf(node: Expression): Certainty {
  if (node.type === "Literal") return ["number", "bigint"].includes(typeof node.value) ? "number" : "other";
  if (node.type === "Identifier") return upperSnakeCase.test(node.name) ? "number" : "unknown";
  if (node.type === "UnaryExpression") return ["-", "+", "~"].includes(node.operator) ? "number" : "other";
  if (node.type === "BinaryExpression") {
    if (numericOperators.has(node.operator)) return "number";
    return node.operator === "+" ? kindOfSum(kindOf(node.left), kindOf(node.right)) : "other";
  }
  if (
    node.type === "ParenthesizedExpression" ||
    node.type === "TSAsExpression" ||
    node.type === "TSSatisfiesExpression"
  ) {
    return kindOf(node.expression);
  }
  return otherTypes.has(node.type) ? "other" : "unknown";
}

function kindOfSum(left: Certainty, right: Certainty): Certainty {
  return left === right ? left : "unknown";
}

/** A constant of a module is UPPER_SNAKE_CASE if it is a number, and camelCase otherwise. */
export const constantCase: Rule = {
  create: (context) => ({
    VariableDeclaration({ kind, parent, declarations }) {
      if (kind !== "const" || (parent.type !== "Program" && parent.type !== "ExportNamedDeclaration")) return;
      for (const { id, init } of declarations) {
        if (id.type !== "Identifier" || init === null) continue;
        const certainty = kindOf(init);
        if (certainty === "number" && !upperSnakeCase.test(id.name)) {
          context.report({ node: id, message: `${id.name} is a number: its name must be UPPER_SNAKE_CASE.` });
        } else if (certainty === "other" && !camelCase.test(id.name)) {
          context.report({ node: id, message: `${id.name} is not a number: its name must be camelCase.` });
        }
      }
    },
  }),
};

/** A sentence of a docstring, or a part after a semicolon, that begins with "Throws". */
const throwsInProse = /(?:^|[.;:]) ?throws? /i;

/** A docstring says in a `@throws` tag, not in its prose, which errors are thrown. */
export const throwsTag: Rule = {
  create: (context) => ({
    Program() {
      for (const comment of context.sourceCode.getAllComments()) {
        if (comment.type !== "Block" || !comment.value.startsWith("*")) continue;
        const [prose] = comment.value.slice(1).split(/^\s*\* @/m);
        const text = prose!.replaceAll(/\s*\n\s*\*?\s*/g, " ").trim();
        if (!throwsInProse.test(text)) continue;
        context.report({ loc: comment.loc, message: "Say in a @throws tag of its own which errors are thrown." });
      }
    },
  }),
};

/** Modules of Node, packages, own modules: parents before siblings, each by its path. */
function rankOf(specifier: string): number {
  if (specifier.startsWith("node:")) return 0;
  return specifier.startsWith(".") ? 2 : 1;
}

function compareImports(first: ImportDeclaration, second: ImportDeclaration): number {
  const [from, to] = [first.source.value, second.source.value];
  if (rankOf(from) !== rankOf(to)) return rankOf(from) - rankOf(to);
  if (from !== to) return from < to ? -1 : 1;
  return Number(first.importKind === "type") - Number(second.importKind === "type");
}

/** Imports are sorted by `compareImports`, with one blank line before the first own module. Comments stay where they are. */
export const importOrder: Rule = {
  meta: { fixable: "code" },
  create: ({ sourceCode, report }) => {
    const checkImports = (imports: readonly ImportDeclaration[]): void => {
      const [first] = imports;
      const last = imports.at(-1);
      // An import for its side effects may have to come before others.
      if (last === undefined || imports.some(({ specifiers }) => specifiers.length === 0)) return;
      const sorted = imports.toSorted(compareImports);
      const expected = sorted
        .map((node, index) => {
          const isFirstOwn =
            rankOf(node.source.value) === 2 && index > 0 && rankOf(sorted[index - 1]!.source.value) < 2;
          return `${index === 0 ? "" : isFirstOwn ? "\n\n" : "\n"}${sourceCode.getText(node)}`;
        })
        .join("");
      const range: [number, number] = [first!.range[0], last.range[1]];
      if (sourceCode.text.slice(...range) === expected) return;
      report({
        node: first!,
        message: "Sort the imports: node:, packages, own modules after a blank line, each by path (oxlint --fix).",
        fix: (fixer) => fixer.replaceTextRange(range, expected),
      });
    };
    return {
      Program({ body }) {
        let imports: ImportDeclaration[] = [];
        for (const statement of body) {
          if (statement.type !== "ImportDeclaration") break;
          const previous = imports.at(-1);
          if (previous !== undefined && sourceCode.commentsExistBetween(previous, statement)) {
            checkImports(imports);
            imports = [];
          }
          imports.push(statement);
        }
        checkImports(imports);
      },
    };
  },
};

const rules: Readonly<Record<string, object>> = {
  "constant-case": constantCase,
  "import-order": importOrder,
  "throws-tag": throwsTag,
};

export default { meta: { name: "fovea" }, rules };
