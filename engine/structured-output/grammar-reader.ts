/** Reads EBNF in the dialect of XGrammar and llama.cpp. */
import { readBracketExpression } from "./bracket-expression.ts";
import { LAST_CODE_POINT } from "./code-point-set.ts";
import type { CodePointSet } from "./code-point-set.ts";
import { alternativesOf, literalOf, MAX_GROUP_NESTING, readQuantifier, sequenceOf } from "./expression.ts";
import type { Expression, Language } from "./expression.ts";
import { refuseStructuredOutput } from "./refusal.ts";

/** The start is the rule `root`. Throws EngineError `invalid_argument` for unsupported syntax. */
export function readGrammar(grammar: string): Language {
  const rules = new GrammarReader(grammar).readRules();
  const root = rules.get("root");
  if (root === undefined) return refuseStructuredOutput('The grammar has no rule "root"');
  return { root, rules };
}

const blankPattern = /(?:[ \t\r\n]|#[^\r\n]*)*/y;
/** A rule or an instruction of Lark. */
const larkPattern = /[?!]?\w{1,64}(?:\.-?\d{1,9})?[ \t]*:(?!:=)|%(?:import|ignore|declare)\b/y;
const namePattern = /[\w.-]+/y;
/** In llama.cpp, any character. In XGrammar, names may contain dots. */
const dotPattern = /\.(?![\w.-])/y;
const anyCharacter: CodePointSet = [[0, LAST_CODE_POINT]];
const stringPattern = /"((?:[^"\\\r\n]|\\[^\r\n])*)"/y;
const escapePattern = /\\(?:x([0-9A-Fa-f]+)|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))/gsu;
const codesByLetter: Readonly<Record<string, string>> = {
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
  f: "\f",
  a: "\u0007",
  b: "\b",
  e: "\u001B",
  0: "\0",
  "'": "'",
  '"': '"',
  "?": "?",
  "[": "[",
  "]": "]",
  "\\": "\\",
};

/** Maximum number of characters of a name in a message. */
const MAX_TOLD = 80;
const macros = new Set(["TagDispatch", "Token", "ExcludeToken", "TokenTagDispatch"]);

class GrammarReader {
  readonly #grammar: string;
  readonly #rules = new Map<string, Expression>();
  readonly #usedNames = new Set<string>();
  #index = 0;
  #depth = 0;

  constructor(grammar: string) {
    this.#grammar = grammar;
  }

  readRules(): ReadonlyMap<string, Expression> {
    this.#skip(blankPattern);
    while (this.#index < this.#grammar.length) {
      if (this.#isAtLark()) {
        const place = `The grammar is in Lark's notation at position ${this.#index}, which is not supported`;
        refuseStructuredOutput(`${place}. Write EBNF, such as root ::= "a"+, which starts with the rule root`);
      }
      if (!this.#isAtRule()) this.#fail("expects a rule, such as root ::= [a-z]+,");
      const [name] = this.#match(namePattern)!;
      this.#skip(blankPattern);
      this.#expect("::=");
      if (this.#rules.has(name)) this.#fail(`has a second rule ${name.slice(0, MAX_TOLD)}`);
      const body = this.#readAlternatives();
      // In XGrammar, a hint at what follows the rule wherever it is used.
      if (this.#takes("(=")) {
        this.#readAlternatives();
        this.#expect(")");
      }
      this.#rules.set(name, body);
    }
    for (const name of this.#usedNames) {
      const shown = name.slice(0, MAX_TOLD);
      if (!this.#rules.has(name)) refuseStructuredOutput(`The grammar uses ${shown}, but has no rule ${shown}`);
    }
    return this.#rules;
  }

  #readAlternatives(): Expression {
    const options = [this.#readSequence()];
    while (this.#takes("|")) options.push(this.#readSequence());
    // One of several may be empty, as in llama.cpp's grammars. A single one is a mistake.
    if (options.length === 1 && options[0] === null) this.#fail('has an empty alternative, which is written "",');
    return alternativesOf(options.map((option) => option ?? literalOf("")));
  }

  /** Null for an empty one. */
  #readSequence(): Expression | null {
    const parts: Expression[] = [];
    for (let part = this.#tryReadPart(); part !== null; part = this.#tryReadPart()) parts.push(part);
    return parts.length === 0 ? null : sequenceOf(parts);
  }

  /** Null at the end of the sequence. */
  #tryReadPart(): Expression | null {
    const part = this.#tryReadElement();
    if (part === null) return null;
    const quantifier = readQuantifier(this.#grammar, this.#index);
    if (quantifier === null) return part;
    const { min, max, end } = quantifier;
    if (min > max) this.#fail(`has the bounds {${min}, ${max}}, whose minimum is above the maximum,`);
    this.#index = end;
    this.#skip(blankPattern);
    return { kind: "repetition", part, min, max };
  }

  #tryReadElement(): Expression | null {
    const next = this.#grammar[this.#index];
    if (next === '"') return this.#readString();
    if (next === "[") {
      const read =
        readBracketExpression(this.#grammar, this.#index) ??
        this.#fail("has a set of characters that is not closed or not valid");
      this.#index = read.end;
      this.#skip(blankPattern);
      return { kind: "set", set: read.set };
    }
    if (next === "(" && this.#grammar[this.#index + 1] !== "=") {
      this.#expect("(");
      if (this.#takes(")")) return literalOf("");
      if (++this.#depth > MAX_GROUP_NESTING) {
        return refuseStructuredOutput(`The grammar may nest at most ${MAX_GROUP_NESTING} groups`);
      }
      const group = this.#readAlternatives();
      this.#expect(")");
      this.#depth--;
      return group;
    }
    if (this.#isAtRule()) return null;
    if (this.#match(dotPattern) !== null) {
      this.#skip(blankPattern);
      return { kind: "set", set: anyCharacter };
    }
    const match = this.#match(namePattern);
    if (match === null) return null;
    const [name] = match;
    this.#skip(blankPattern);
    // With a parenthesis it would be one of XGrammar's macros, which are about tokens.
    if (this.#grammar[this.#index] === "(" && macros.has(name)) this.#refuse(name);
    this.#usedNames.add(name);
    return { kind: "rule", name };
  }

  /** Whether a name and `::=` follow. */
  #isAtRule(): boolean {
    const start = this.#index;
    const isName = this.#match(namePattern) !== null;
    this.#skip(blankPattern);
    const isRule = isName && this.#grammar.startsWith("::=", this.#index);
    this.#index = start;
    return isRule;
  }

  #isAtLark(): boolean {
    larkPattern.lastIndex = this.#index;
    return larkPattern.test(this.#grammar);
  }

  #readString(): Expression {
    const [, source] = this.#match(stringPattern) ?? this.#fail("has a string that is not closed");
    const text = source!.replaceAll(escapePattern, (escape, x, u, long, letter) => {
      const hex: string | undefined = x ?? u ?? long;
      const code = hex === undefined ? null : Number.parseInt(hex, 16);
      if (code !== null) return code <= LAST_CODE_POINT ? String.fromCodePoint(code) : this.#refuse(escape);
      return codesByLetter[letter] ?? this.#refuse(escape);
    });
    this.#skip(blankPattern);
    return literalOf(text);
  }

  /** Reads `symbol` if it follows, and returns whether it did. */
  #takes(symbol: string): boolean {
    if (!this.#grammar.startsWith(symbol, this.#index)) return false;
    this.#index += symbol.length;
    this.#skip(blankPattern);
    return true;
  }

  #expect(symbol: string): void {
    if (!this.#takes(symbol)) this.#fail(`expects ${symbol}`);
  }

  #match(expression: RegExp): RegExpExecArray | null {
    expression.lastIndex = this.#index;
    const match = expression.exec(this.#grammar);
    if (match !== null) this.#index = expression.lastIndex;
    return match;
  }

  #skip(expression: RegExp): void {
    this.#match(expression);
  }

  #refuse(what: string): never {
    return refuseStructuredOutput(`The grammar has ${what} at position ${this.#index}, which is not supported`);
  }

  /** For what no dialect allows. */
  #fail(fault: string): never {
    return refuseStructuredOutput(`The grammar ${fault} at position ${this.#index}`);
  }
}
