/** Reads the tokens of a template one by one. */
import type { Token } from "./lexer.ts";
import { JinjaError } from "./values.ts";

export class TokenReader {
  readonly #tokens: readonly Token[];
  #position = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  get current(): Token {
    return this.#tokens[this.#position] ?? { type: "end" };
  }

  next(): Token {
    const token = this.current;
    this.#position += 1;
    return token;
  }

  isName(...names: readonly string[]): boolean {
    return this.current.type === "name" && names.includes(this.current.value);
  }

  isOperator(...operators: readonly string[]): boolean {
    return this.current.type === "operator" && operators.includes(this.current.value);
  }

  /** The next token is `{%` with one of these names after it. */
  isBlock(...names: readonly string[]): boolean {
    const following = this.#tokens[this.#position + 1];
    return this.current.type === "begin block" && following?.type === "name" && names.includes(following.value);
  }

  skipName(name: string): boolean {
    if (!this.isName(name)) return false;
    this.#position += 1;
    return true;
  }

  skipOperator(operator: string): boolean {
    if (!this.isOperator(operator)) return false;
    this.#position += 1;
    return true;
  }

  expectName(name?: string): string {
    const token = this.next();
    if (token.type === "name" && (name === undefined || token.value === name)) return token.value;
    throw new JinjaError(`expected ${name ?? "a name"}, got ${describe(token)}`);
  }

  expectOperator(operator: string): void {
    if (!this.skipOperator(operator)) throw new JinjaError(`expected '${operator}', got ${describe(this.current)}`);
  }

  expect(type: Token["type"]): void {
    const token = this.next();
    if (token.type !== type) throw new JinjaError(`expected ${type} of a tag, got ${describe(token)}`);
  }
}

export function describe(token: Token): string {
  return "value" in token && typeof token.value === "string" ? `'${token.value}'` : token.type;
}
