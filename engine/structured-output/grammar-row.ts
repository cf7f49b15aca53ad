/** One request's way through its grammar. */
import { EngineError } from "../errors.ts";
import type { CompiledGrammar } from "./grammar-compiler.ts";
import type { LoadedGrammars } from "./loaded-grammars.ts";
import { allowOnly, allowsNothing } from "./token-bitmask.ts";
import type { TokenBitmask } from "./token-bitmask.ts";
import type { TokenMatcher } from "./xgrammar.ts";

/** Mutable; owns a matcher. Nothing throws: the first failure is kept, and from then on no token is allowed. */
export class GrammarRow implements Disposable {
  readonly #grammars: LoadedGrammars;
  readonly #grammar: CompiledGrammar;
  /** The live list. */
  readonly #outputTokenIds: readonly number[];
  /** Null once it has failed or is disposed. */
  #matcher: TokenMatcher | null = null;
  #numAccepted = 0;
  #failure: EngineError | null = null;

  constructor(grammars: LoadedGrammars, grammar: CompiledGrammar, outputTokenIds: readonly number[]) {
    this.#grammars = grammars;
    this.#grammar = grammar;
    this.#outputTokenIds = outputTokenIds;
    try {
      this.#matcher = grammars.createMatcher(grammar);
    } catch (error) {
      this.#breakDown(error);
    }
  }

  get failure(): EngineError | null {
    return this.#failure;
  }

  /** Follows the output up to its newest token; what comes after an end token is ignored. */
  acceptNewTokens(): void {
    const matcher = this.#matcher;
    if (matcher === null) return;
    try {
      while (this.#numAccepted < this.#outputTokenIds.length && !matcher.isTerminated) {
        const tokenId = this.#outputTokenIds[this.#numAccepted];
        if (!matcher.accept(tokenId))
          return this.#fail(`its grammar does not allow the token ${tokenId} that was chosen`);
        this.#numAccepted++;
      }
    } catch (error) {
      this.#breakDown(error);
    }
  }

  /** What may follow the accepted tokens; after the end, which a request may ignore, the end tokens. */
  fillBitmask(bitmask: TokenBitmask): void {
    const matcher = this.#matcher;
    if (matcher === null) return void bitmask.fill(0);
    const { vocabSize, eosTokenIds } = this.#grammar.vocabulary;
    try {
      if (matcher.isTerminated) allowOnly(bitmask, eosTokenIds);
      else matcher.fillBitmask(bitmask);
      if (allowsNothing(bitmask, vocabSize)) this.#fail("its grammar allows no token here");
    } catch (error) {
      this.#breakDown(error);
      bitmask.fill(0);
    }
  }

  [Symbol.dispose](): void {
    if (this.#matcher !== null) this.#grammars.release(this.#grammar, this.#matcher);
    this.#matcher = null;
  }

  #fail(reason: string, cause?: unknown): void {
    this.#failure = new EngineError("runtime_failed", `The structured output failed: ${reason}.`, {
      ...(cause !== undefined && { cause }),
    });
    this[Symbol.dispose]();
  }

  /** What the grammar engine throws leaves its memory in doubt: others that use it go on, new ones get a fresh copy. */
  #breakDown(cause: unknown): void {
    this.#matcher = null;
    this.#grammars.discard(this.#grammar);
    this.#fail(cause instanceof Error ? cause.message : String(cause), cause);
  }
}
