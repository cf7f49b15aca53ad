/** The syntax tree of a Jinja template. */
import type { Value } from "./values.ts";

export interface Arguments {
  readonly args: readonly Expression[];
  readonly keywords: readonly { readonly name: string; readonly value: Expression }[];
  /** `*list` and `**dict`. */
  readonly list: Expression | null;
  readonly dict: Expression | null;
}

export interface Name {
  readonly type: "Identifier";
  readonly value: string;
}

export interface FilterCall extends Arguments {
  readonly name: string;
}

export type Expression =
  | Name
  | { readonly type: "Literal"; readonly value: Value }
  | { readonly type: "StringLiteral"; readonly value: string }
  | { readonly type: "List"; readonly items: readonly Expression[] }
  | { readonly type: "Tuple"; readonly items: readonly Expression[] }
  | { readonly type: "Dict"; readonly entries: readonly (readonly [Expression, Expression])[] }
  | {
      readonly type: "MemberExpression";
      readonly object: Expression;
      readonly property: Expression | Slice;
      readonly computed: boolean;
    }
  | ({ readonly type: "CallExpression"; readonly callee: Expression } & Arguments)
  | { readonly type: "FilterExpression"; readonly operand: Expression; readonly filter: FilterCall }
  | ({
      readonly type: "TestExpression";
      readonly operand: Expression;
      readonly test: Name;
    } & Arguments)
  | { readonly type: "Unary"; readonly operator: "not" | "-" | "+"; readonly operand: Expression }
  | { readonly type: "Binary"; readonly operator: string; readonly left: Expression; readonly right: Expression }
  | { readonly type: "Comparison"; readonly first: Expression; readonly rest: readonly Comparison[] }
  | { readonly type: "Concatenation"; readonly parts: readonly Expression[] }
  | {
      readonly type: "Ternary";
      readonly condition: Expression;
      readonly trueExpr: Expression;
      readonly falseExpr: Expression | null;
    };

export interface Comparison {
  readonly operator: string;
  readonly operand: Expression;
}

export interface Slice {
  readonly type: "SliceExpression";
  readonly start: Expression | null;
  readonly stop: Expression | null;
  readonly step: Expression | null;
}

/** A name, several of them, or a member of a namespace. */
export type Target =
  | Name
  | { readonly type: "Targets"; readonly items: readonly Target[] }
  | { readonly type: "NamespaceMember"; readonly object: string; readonly member: string };

export interface Parameters {
  readonly args: readonly Name[];
  /** Of the last parameters. */
  readonly defaults: readonly Expression[];
}

export type Statement =
  | { readonly type: "Text"; readonly text: string }
  | { readonly type: "Output"; readonly value: Expression }
  | {
      readonly type: "If";
      readonly condition: Expression;
      readonly body: readonly Statement[];
      readonly alternate: readonly Statement[];
    }
  | {
      readonly type: "For";
      readonly loopvar: Target;
      readonly iterable: Expression;
      readonly condition: Expression | null;
      readonly isRecursive: boolean;
      readonly body: readonly Statement[];
      readonly alternate: readonly Statement[];
    }
  | { readonly type: "Set"; readonly assignee: Target; readonly value: Expression }
  | {
      readonly type: "SetBlock";
      readonly assignee: Target;
      readonly filters: readonly FilterCall[];
      readonly body: readonly Statement[];
    }
  | ({ readonly type: "Macro"; readonly name: Name; readonly body: readonly Statement[] } & Parameters)
  | ({ readonly type: "Call"; readonly call: Expression; readonly body: readonly Statement[] } & Parameters)
  | { readonly type: "FilterBlock"; readonly filters: readonly FilterCall[]; readonly body: readonly Statement[] }
  | {
      readonly type: "With";
      readonly assignments: readonly { readonly assignee: Target; readonly value: Expression }[];
      readonly body: readonly Statement[];
    }
  | { readonly type: "Break" }
  | { readonly type: "Continue" };
