/** One row of the settings, trees of rows, and how a tree is read from the environment. */

/** Turns the text of an environment variable into a value. */
export interface Parser<Value> {
  /** Completes "expected ..." in an error. */
  readonly expected: string;
  /** Takes text without white space around it; returns undefined for text that is not allowed. */
  readonly parse: (text: string) => Value | undefined;
}

/** Description of a setting for `--help` and `--print-config`. */
export interface SettingDescription {
  readonly name: string;
  readonly description: string;
  /** As the environment would give it; null without a default. */
  readonly defaultText: string | null;
  readonly isSecret: boolean;
  /** The parser's: completes "expected ...". */
  readonly expected: string;
}

export interface Setting<Name extends string = string, Value = unknown> extends SettingDescription {
  readonly name: Name;
  readonly parser: Parser<Value>;
  /** Whether empty text counts as unset. */
  readonly isUnsetByEmpty: boolean;
  /** The value without text and without `defaultText`. */
  readonly unset: Value;
}

interface RowOptions {
  /** Masked in errors and by `--print-config`. */
  readonly secret?: true;
  /** Empty text is an error. Otherwise it counts as unset. */
  readonly rejectEmpty?: true;
}

interface DefaultOption {
  /** As the environment would give it: numbers are in the unit of the setting. */
  readonly default: string | number | boolean;
}

interface UnsetOption<Value> {
  /** Instead of a default: the value if nothing is set. Null if left out. */
  readonly unset: Value;
}

/** A row: the environment name, its parser, the help text and options. */
export function setting<const Name extends string, Value>(
  name: Name,
  parser: Parser<Value>,
  description: string,
  options: RowOptions & (DefaultOption | UnsetOption<NoInfer<Value>>),
): Setting<Name, Value>;
export function setting<const Name extends string, Value>(
  name: Name,
  parser: Parser<Value>,
  description: string,
  options?: RowOptions,
): Setting<Name, Value | null>;
export function setting(
  name: string,
  parser: Parser<unknown>,
  description: string,
  options: RowOptions & Partial<DefaultOption & UnsetOption<unknown>> = {},
): Setting {
  return {
    name,
    parser,
    description,
    defaultText: options.default === undefined ? null : String(options.default),
    isSecret: options.secret === true,
    expected: parser.expected,
    isUnsetByEmpty: options.rejectEmpty !== true,
    unset: options.unset ?? null,
  };
}

export interface SettingTree {
  readonly [field: string]: Setting | SettingTree;
}

/** The environment names of a tree. */
export type NamesOf<Node> =
  Node extends Setting<infer Name> ? Name : { readonly [Field in keyof Node]: NamesOf<Node[Field]> }[keyof Node];

/** The values of a tree. */
export type ValuesOf<Tree> = {
  readonly [Field in keyof Tree]: Tree[Field] extends Setting<string, infer Value> ? Value : ValuesOf<Tree[Field]>;
};

/** The values of a tree; undefined for invalid texts. */
export type ParsedValuesOf<Tree> = {
  readonly [Field in keyof Tree]: Tree[Field] extends Setting<string, infer Value>
    ? Value | undefined
    : ParsedValuesOf<Tree[Field]>;
};

export type Environment = Readonly<Record<string, string | undefined>>;

/** Everything that is wrong with the settings, one sentence per problem. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join("\n"));
    this.problems = problems;
  }
}

/** The rows of a tree in their order. */
export function rowsOf(tree: SettingTree): readonly Setting[] {
  return Object.values(tree).flatMap((node) => (isSetting(node) ? [node] : rowsOf(node)));
}

/** Reads every row; `problems` has a sentence for each whose text is wrong. */
export function readSettings<const Tree extends SettingTree>(
  tree: Tree,
  environment: Environment,
): { readonly values: ParsedValuesOf<Tree>; readonly problems: readonly string[] } {
  const problems: string[] = [];
  const readTree = (node: SettingTree): unknown =>
    Object.fromEntries(
      Object.entries(node).map(([field, child]) => [field, isSetting(child) ? readRow(child) : readTree(child)]),
    );
  const readRow = (row: Setting): unknown => {
    const text = textOf(row, environment);
    if (text === null) return row.unset;
    const value = row.parser.parse(text.trim());
    if (value === undefined) problems.push(describeProblem(row, text));
    return value;
  };
  return { values: readTree(tree) as ParsedValuesOf<Tree>, problems };
}

function isSetting(node: Setting | SettingTree): node is Setting {
  return typeof node.parser === "object" && "parse" in node.parser;
}

function textOf({ name, isUnsetByEmpty, defaultText }: Setting, environment: Environment): string | null {
  const given = environment[name];
  return given === undefined || (isUnsetByEmpty && given.trim() === "") ? defaultText : given;
}

/** Maximum number of characters of an invalid value in an error. */
const MAX_SHOWN_CHARACTERS = 80;

function describeProblem({ name, isSecret, parser }: Setting, text: string): string {
  // Every other empty setting counts as unset.
  if (text.trim() === "") return `${name} is empty: expected ${parser.expected}. Leave the variable out to have none.`;
  const shown = isSecret ? "has a value that does not parse" : `is ${JSON.stringify(shorten(maskPasswords(text)))}`;
  return `${name} ${shown}: expected ${parser.expected}.`;
}

function shorten(text: string): string {
  return text.length <= MAX_SHOWN_CHARACTERS ? text : `${text.slice(0, MAX_SHOWN_CHARACTERS)}…`;
}

/** Shown in place of a secret. */
export const secretMask = "********";

/** Masks the user and password of every URL in the text, and what an http(s) URL asks for, which may be a token. */
export function maskPasswords(text: string): string {
  return text
    .replace(/(?<=:\/\/)[^/\s]+(?=@)/g, secretMask)
    .replace(/(?<=https?:\/\/[^\s,?"']+\?)[^\s,#"']+/gi, secretMask);
}
