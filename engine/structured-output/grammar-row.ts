/** One request's way through its grammar. */
import { EngineError } from "../contract/errors.ts";
import type { CompiledGrammar } from "./grammar-compiler.ts";
import { bytesOf } from "./grammar-vocabulary.ts";
import type { GrammarTools, LoadedGrammars } from "./loaded-grammars.ts";
import { advanceText, canEnd, startText } from "./text-tracker.ts";
import type { TrackedText } from "./text-tracker.ts";
import { allowOnly, allowsNothing } from "./token-bitmask.ts";
import type { TokenBitmask } from "./token-bitmask.ts";

/**
 * Mutable; owns a matcher, which says what may come next, and follows the text itself besides, so that what the grammar
 * engine lets pass by mistake ends the row instead of getting out. Nothing throws: the first failure is kept, and from
 * then on no token is allowed.
 */
export class GrammarRow implements Disposable {
  readonly #grammars: LoadedGrammars;
  readonly #grammar: CompiledGrammar;
  /** The live list. */
  readonly #outputTokenIds: readonly number[];
  /** Null once it has failed or is disposed. */
  #tools: GrammarTools | null = null;
  /** Up to the last accepted token. Only of use with tools. */
  #text!: TrackedText;
  /** What `checkChosen` found last; the token is most often accepted next. */
  #chosen: { readonly tokenId: number; readonly text: TrackedText } | null = null;
  #numAccepted = 0;
  #failure: EngineError | null = null;

  constructor(grammars: LoadedGrammars, grammar: CompiledGrammar, outputTokenIds: readonly number[]) {
    this.#grammars = grammars;
    this.#grammar = grammar;
    this.#outputTokenIds = outputTokenIds;
    try {
      this.#tools = grammars.open(grammar);
      this.#text = startText(this.#tools.recognizer);
    } catch (error) {
      this.#breakDown(error);
    }
  }

  get failure(): EngineError | null {
    return this.#failure;
  }

  /** Follows the output up to its newest token; what comes after an end token is ignored. */
  acceptNewTokens(): void {
    try {
      while (this.#tools !== null && this.#numAccepted < this.#outputTokenIds.length) {
        const { matcher } = this.#tools;
        if (matcher.isTerminated) return;
        const tokenId = this.#outputTokenIds[this.#numAccepted];
        const text = this.#textAfter(tokenId, this.#tools);
        if (text === null || !matcher.accept(tokenId)) return this.#failAt(tokenId);
        this.#text = text;
        this.#chosen = null;
        this.#numAccepted++;
      }
    } catch (error) {
      this.#breakDown(error);
    }
  }

  /** What may follow the accepted tokens; after the end, which a request may ignore, the end tokens. */
  fillBitmask(bitmask: TokenBitmask): void {
    if (this.#tools === null) return void bitmask.fill(0);
    const { matcher } = this.#tools;
    const { vocabSize, eosTokenIds } = this.#grammar.vocabulary;
    try {
      if (matcher.isTerminated) allowOnly(bitmask, eosTokenIds);
      else matcher.fillBitmask(bitmask);
      if (allowsNothing(bitmask, vocabSize)) this.#fail("allows no token here");
    } catch (error) {
      this.#breakDown(error);
      bitmask.fill(0);
    }
  }

  /** To be asked before `tokenId` is told to anyone: from then on `failure` tells why it must not be. */
  checkChosen(tokenId: number): void {
    if (this.#tools === null) return;
    try {
      const text = this.#textAfter(tokenId, this.#tools);
      if (text === null) return this.#failAt(tokenId);
      this.#chosen = { tokenId, text };
    } catch (error) {
      this.#breakDown(error);
    }
  }

  [Symbol.dispose](): void {
    if (this.#tools !== null) this.#grammars.release(this.#grammar, this.#tools.matcher);
    this.#tools = null;
  }

  /** Null for a token that must not come next. */
  #textAfter(tokenId: number, { matcher, recognizer }: GrammarTools): TrackedText | null {
    if (this.#chosen?.tokenId === tokenId) return this.#chosen.text;
    const { vocabulary } = this.#grammar;
    const isEnd = vocabulary.eosTokenIds.includes(tokenId);
    if (matcher.isTerminated) return isEnd ? this.#text : null;
    if (isEnd) return canEnd(this.#text) ? this.#text : null;
    const bytes = bytesOf(vocabulary, tokenId);
    return bytes.length === 0 ? null : advanceText(recognizer, this.#text, bytes);
  }

  #failAt(tokenId: number): void {
    this.#fail(`does not allow the token ${tokenId} that was chosen`);
  }

  #fail(reason: string, cause?: unknown): void {
    this.#failure = new EngineError("runtime_failed", `The structured output ${this.#grammar.description} ${reason}.`, {
      ...(cause !== undefined && { cause }),
    });
    this[Symbol.dispose]();
  }

  /** What the grammar engine throws leaves its memory in doubt: others that use it go on, new ones get a fresh copy. */
  #breakDown(cause: unknown): void {
    this.#tools = null;
    this.#grammars.discard(this.#grammar);
    this.#fail(`failed: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  }
}
