/** Tells which texts belong to a language, character by character. */
import type { CodePointSet } from "./code-point-set.ts";
import type { Expression, Language } from "./expression.ts";

/** What is still to come of the expressions under way, the next one first. There is one object for equal ones. */
class Rest {
  readonly next: Expression | null;
  readonly behind: Rest | null;
  readonly #before = new Map<Expression, Rest>();

  constructor(next: Expression | null, behind: Rest | null) {
    this.next = next;
    this.behind = behind;
  }

  before(next: Expression): Rest {
    let rest = this.#before.get(next);
    if (rest === undefined) this.#before.set(next, (rest = new Rest(next, this)));
    return rest;
  }
}

type Repetition = Extract<Expression, { readonly kind: "repetition" }>;
type Words = Extract<Expression, { readonly kind: "words" }>;

/** Words by their first characters, so that all that begin alike are followed as one. */
interface WordList {
  readonly canBeEmpty: boolean;
  /** What is left of those with this first code point. */
  readonly after: ReadonlyMap<number, Words>;
}

/** A rule that was begun at a position. Mutable until the text goes on from there. */
interface Call {
  readonly position: number;
  /** What goes on when the rule has ended, by the call it goes on in. */
  readonly returns: Returns;
  /** Whether the rule can be the empty text here. */
  isEmpty: boolean;
}

type Returns = Map<Call | null, Set<Rest>>;

/** One way to read the text so far. */
interface Reading {
  readonly rest: Rest;
  /** Null in `root`. */
  readonly call: Call | null;
}

/** A place in a text. Not changed any more. */
export interface TextPosition {
  readonly position: number;
  /** Whether the text may end here. */
  readonly canEnd: boolean;
  /** Each waits for a character of a set. */
  readonly readings: readonly Reading[];
}

/** Each takes about a microsecond at every character. */
const maxReadings = 40_000;

/**
 * Follows all ways to read a text at once, as Earley's algorithm does: the calls of rules form a graph in which those
 * of one rule at one position are one, so that also left recursion and ambiguity end. Repetitions are counted as they
 * are read and never written out. A call that is the last thing in its rule returns where that rule would, so that
 * right recursion takes no longer as the text grows.
 */
export class Recognizer {
  readonly #rules: ReadonlyMap<string, Expression>;
  readonly #end = new Rest(null, null);
  readonly #rounds = new WeakMap<Repetition, Repetition>();
  readonly #wordLists = new WeakMap<Words, WordList>();
  /** Before the first character. */
  readonly start: TextPosition;

  constructor({ root, rules }: Language) {
    this.#rules = rules;
    this.start = this.#settle(0, [{ rest: this.#end.before(root), call: null }]);
  }

  /** Null when no text of the language goes on with the character. Throws when it can be read in too many ways. */
  advance({ position, readings }: TextPosition, codePoint: number): TextPosition | null {
    const moved: Reading[] = [];
    for (const { rest, call } of readings) {
      const next = rest.next!;
      if (next.kind === "set" && contains(next.set, codePoint)) moved.push({ rest: rest.behind!, call });
      if (next.kind !== "words") continue;
      const remainder = this.#wordListOf(next).after.get(codePoint);
      if (remainder !== undefined) moved.push({ rest: rest.behind!.before(remainder), call });
    }
    if (moved.length === 0) return null;
    return this.#settle(position + 1, moved);
  }

  /** Goes on from `begun` as far as no character is needed. */
  #settle(position: number, begun: readonly Reading[]): TextPosition {
    const seen = new Map<Call | null, Set<Rest>>();
    const calls = new Map<Expression, Call>();
    const pending: Reading[] = [];
    const readings: Reading[] = [];
    let canEnd = false;
    let numSeen = 0;
    const add = (rest: Rest, call: Call | null): void => {
      let rests = seen.get(call);
      if (rests === undefined) seen.set(call, (rests = new Set()));
      if (rests.has(rest)) return;
      rests.add(rest);
      if (++numSeen > maxReadings) throw new Error(`its text can be read in more than ${maxReadings} ways`);
      pending.push({ rest, call });
    };
    for (const { rest, call } of begun) add(rest, call);
    for (let reading = pending.pop(); reading !== undefined; reading = pending.pop()) {
      const { rest, call } = reading;
      const { next, behind } = rest;
      if (next === null) {
        if (call === null) canEnd = true;
        else {
          call.isEmpty ||= call.position === position;
          for (const [caller, rests] of call.returns) for (const back of rests) add(back, caller);
        }
        continue;
      }
      switch (next.kind) {
        case "set":
          readings.push(reading);
          break;
        case "words": {
          const { canBeEmpty, after } = this.#wordListOf(next);
          if (canBeEmpty) add(behind!, call);
          if (after.size > 0) readings.push(reading);
          break;
        }
        case "sequence":
          add(
            next.parts.reduceRight<Rest>((after, part) => after.before(part), behind!),
            call,
          );
          break;
        case "alternatives":
          for (const option of next.options) add(behind!.before(option), call);
          break;
        case "repetition":
          if (next.min === 0) add(behind!, call);
          if (next.max > 0) add(behind!.before(this.#roundAfter(next)).before(next.part), call);
          break;
        case "rule": {
          const body = this.#rules.get(next.name)!;
          let begunCall = calls.get(body);
          if (begunCall === undefined) {
            calls.set(body, (begunCall = { position, returns: new Map(), isEmpty: false }));
            add(this.#end.before(body), begunCall);
          }
          // The returns of a call that was begun earlier are all known.
          const isLast = behind === this.#end && call !== null && call.position < position;
          const returns: Returns = isLast ? call.returns : new Map([[call, new Set([behind!])]]);
          for (const [caller, rests] of returns) {
            const known = begunCall.returns.get(caller) ?? new Set<Rest>();
            begunCall.returns.set(caller, known);
            for (const back of rests) {
              known.add(back);
              if (begunCall.isEmpty) add(back, caller);
            }
          }
          break;
        }
        default:
          next satisfies never;
      }
    }
    return { position, canEnd, readings };
  }

  /** What is left of a repetition after one round. */
  #roundAfter(repetition: Repetition): Repetition {
    const { kind, part, min, max } = repetition;
    if (min === 0 && max === Infinity) return repetition;
    let round = this.#rounds.get(repetition);
    if (round === undefined) {
      round = { kind, part, min: Math.max(0, min - 1), max: max - 1 };
      this.#rounds.set(repetition, round);
    }
    return round;
  }

  #wordListOf(words: Words): WordList {
    let list = this.#wordLists.get(words);
    if (list === undefined) this.#wordLists.set(words, (list = listWords(words.words)));
    return list;
  }
}

function listWords(words: readonly string[]): WordList {
  const remainders = new Map<number, string[]>();
  for (const word of words) {
    const first = word.codePointAt(0);
    if (first === undefined) continue;
    const remainder = word.slice(first > 0xff_ff ? 2 : 1);
    const others = remainders.get(first);
    if (others === undefined) remainders.set(first, [remainder]);
    else others.push(remainder);
  }
  const after = new Map<number, Words>();
  for (const [first, rest] of remainders) after.set(first, { kind: "words", words: rest });
  return { canBeEmpty: words.includes(""), after };
}

function contains(set: CodePointSet, codePoint: number): boolean {
  for (const [first, last] of set) if (codePoint <= last) return codePoint >= first;
  return false;
}
