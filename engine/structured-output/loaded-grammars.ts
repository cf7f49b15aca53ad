/** The grammars in use on this thread. */
import type { CompiledGrammar } from "./grammar-compiler.ts";
import { readLanguage } from "./language.ts";
import { Recognizer } from "./recognizer.ts";
import { LoadedGrammar } from "./xgrammar.ts";
import type { TokenMatcher } from "./xgrammar.ts";

/**
 * Grammars nobody uses that are kept for the next request; loading one takes about ten milliseconds, its memory is
 * that of its image.
 */
const maxNumIdle = 8;

interface Entry {
  readonly loaded: LoadedGrammar;
  readonly recognizer: Recognizer;
  readonly matchers: Set<TokenMatcher>;
}

/** What one text needs of its grammar. */
export interface GrammarTools {
  /** At the start of a text. */
  readonly matcher: TokenMatcher;
  readonly recognizer: Recognizer;
}

/** Mutable. */
export class LoadedGrammars {
  /** By id, in the order of last use. */
  readonly #entries = new Map<string, Entry>();

  get size(): number {
    return this.#entries.size;
  }

  /** Throws what the grammar engine throws when it runs out of memory. */
  open(grammar: CompiledGrammar): GrammarTools {
    const { id } = grammar;
    const entry = this.#entries.get(id) ?? load(grammar);
    this.#entries.delete(id);
    this.#entries.set(id, entry);
    const matcher = entry.loaded.createMatcher();
    entry.matchers.add(matcher);
    return { matcher, recognizer: entry.recognizer };
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

function load({ image, source, vocabulary }: CompiledGrammar): Entry {
  return {
    loaded: new LoadedGrammar(image, vocabulary),
    recognizer: new Recognizer(readLanguage(source)),
    matchers: new Set(),
  };
}
