/** Turns languages into programs. */
import type { Expression, Language } from "./expression.ts";
import { ProgramBuilder } from "./program-builder.ts";
import type { Program } from "./program.ts";
import { findNullableRules, mentionedRules } from "./rule-properties.ts";

/**
 * A rule with texts of at most this many characters is inlined: returning from a call would cost more than sharing
 * saves.
 */
const MAX_INLINE_LENGTH = 8;

/** Some milliseconds. */
const RULES_PER_SLICE = 1000;

/**
 * Every rule of the language must end; see `findEndlessRule`. Throws EngineError `invalid_argument` if it is too large.
 */
export function toProgramInSlices(language: Language): Generator<void, Program> {
  return new LanguageWriter(language).write();
}

/** Rules are written after the rules that they mention, as far as possible, so that short ones can be inlined. */
class LanguageWriter {
  readonly #language: Language;
  readonly #builder = new ProgramBuilder();
  readonly #nullableRules: ReadonlySet<string>;
  /** The node that replaces each mention of a rule. */
  readonly #nodes = new Map<string, number>();
  readonly #ruleIndices = new Map<string, number>();
  readonly #written = new Map<Expression, number>();
  #numWrittenRules = 0;

  constructor(language: Language) {
    this.#language = language;
    this.#nullableRules = findNullableRules(language);
  }

  *write(): Generator<void, Program> {
    const { root, rules } = this.#language;
    const mentions = new Map(Array.from(rules, ([name, body]) => [name, mentionedRules(body)]));
    const mentioners = new Map<string, string[]>();
    const numOpen = new Map<string, number>();
    for (const [name, mentioned] of mentions) {
      numOpen.set(name, mentioned.size);
      for (const other of mentioned) {
        const names = mentioners.get(other);
        if (names === undefined) mentioners.set(other, [name]);
        else names.push(name);
      }
    }
    const ready = Array.from(numOpen).flatMap(([name, count]) => (count === 0 ? [name] : []));
    for (let name = ready.pop(); name !== undefined; name = ready.pop()) {
      if (++this.#numWrittenRules % RULES_PER_SLICE === 0) yield;
      const body = this.#write(rules.get(name)!);
      if (!this.#isShort(body)) {
        this.#define(name, body);
        continue;
      }
      this.#nodes.set(name, body);
      for (const mentioner of mentioners.get(name) ?? []) {
        const count = numOpen.get(mentioner)! - 1;
        numOpen.set(mentioner, count);
        if (count === 0) ready.push(mentioner);
      }
    }
    for (const [name, body] of rules) {
      if (this.#nodes.has(name)) continue;
      if (++this.#numWrittenRules % RULES_PER_SLICE === 0) yield;
      this.#define(name, this.#write(body));
    }
    return this.#builder.build(this.#write(root));
  }

  #isShort(body: number): boolean {
    const repeated = this.#builder.isRepetition(body) ? this.#builder.part(body) : body;
    return this.#builder.maxLength(repeated) <= MAX_INLINE_LENGTH;
  }

  #define(name: string, body: number): void {
    const index = this.#ruleIndexOf(name);
    this.#builder.setBody(index, body);
    this.#nodes.set(name, this.#builder.rule(index, this.#nullableRules.has(name)));
  }

  #ruleIndexOf(name: string): number {
    let index = this.#ruleIndices.get(name);
    if (index === undefined) this.#ruleIndices.set(name, (index = this.#builder.addRule()));
    return index;
  }

  #write(expression: Expression): number {
    let node = this.#written.get(expression);
    if (node === undefined) this.#written.set(expression, (node = this.#nodeOf(expression)));
    return node;
  }

  #nodeOf(expression: Expression): number {
    const builder = this.#builder;
    switch (expression.kind) {
      case "set":
        return builder.set(expression.set);
      case "words":
        return builder.words(expression.words);
      case "sequence":
        return builder.sequence(expression.parts.map((part) => this.#write(part)));
      case "alternatives":
        return builder.alternatives(expression.options.map((option) => this.#write(option)));
      case "repetition":
        return builder.repetition(this.#write(expression.part), expression.min, expression.max);
      case "limited":
        return builder.limited(this.#write(expression.part), expression.max);
      case "rule": {
        const { name } = expression;
        return this.#nodes.get(name) ?? builder.rule(this.#ruleIndexOf(name), this.#nullableRules.has(name));
      }
      default:
        return expression satisfies never;
    }
  }
}
