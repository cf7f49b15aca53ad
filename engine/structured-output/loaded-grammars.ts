/** The grammars in use on this thread. */
import type { CompiledGrammar } from "./grammar-compiler.ts";
import { LoadedGrammar } from "./xgrammar.ts";
import type { TokenMatcher } from "./xgrammar.ts";

/**
 * Grammars nobody uses that are kept for the next request; loading one takes about ten milliseconds, its memory is
 * that of its image.
 */
const maxNumIdle = 8;

interface Entry {
  readonly loaded: LoadedGrammar;
  readonly matchers: Set<TokenMatcher>;
}

/** Mutable. */
export class LoadedGrammars {
  /** By id, in the order of last use. */
  readonly #entries = new Map<string, Entry>();

  get size(): number {
    return this.#entries.size;
  }

  /** At the start of a text. Throws what the grammar engine throws when it runs out of memory. */
  createMatcher({ id, image, vocabulary }: CompiledGrammar): TokenMatcher {
    const entry = this.#entries.get(id) ?? { loaded: new LoadedGrammar(image, vocabulary), matchers: new Set() };
    this.#entries.delete(id);
    this.#entries.set(id, entry);
    const matcher = entry.loaded.createMatcher();
    entry.matchers.add(matcher);
    return matcher;
  }

  /** Frees the matcher. */
  release({ id }: CompiledGrammar, matcher: TokenMatcher): void {
    matcher[Symbol.dispose]();
    this.#entries.get(id)?.matchers.delete(matcher);
    this.#dropOldestIdle();
  }

  /** Leaves the grammar to the matchers that are there. */
  discard({ id }: CompiledGrammar): void {
    this.#entries.delete(id);
  }

  #dropOldestIdle(): void {
    const idle = Array.from(this.#entries).filter(([, { matchers }]) => matchers.size === 0);
    for (const [id] of idle.slice(0, -maxNumIdle)) this.#entries.delete(id);
  }
}
