/** The grammars in use on this thread. */
import type { CompiledGrammar } from "./compiled-grammar.ts";
import { Recognizer } from "./recognizer.ts";
import { TokenMaskCache } from "./token-mask-cache.ts";
import { TokenMasks } from "./token-masks.ts";
import { WorkMeter } from "./work-meter.ts";

/** Maximum number of unused grammars that stay loaded, with their caches, for later requests. */
const MAX_NUM_IDLE = 8;
/** Limit for the cached masks of all grammars. One takes up to 19 KB with a vocabulary of 150,000 tokens. */
const MAX_MASK_BYTES = 128 * 2 ** 20;

/** State shared by all rows of a grammar. */
export interface LoadedGrammar {
  readonly recognizer: Recognizer;
  readonly masks: TokenMasks;
  /** For the recognizer and the masks. */
  readonly meter: WorkMeter;
}

interface Entry extends LoadedGrammar {
  numUsers: number;
}

/** Mutable. */
export class LoadedGrammars {
  /** By id, in the order of last use. */
  readonly #entries = new Map<string, Entry>();
  readonly #cache = new TokenMaskCache(MAX_MASK_BYTES);

  get size(): number {
    return this.#entries.size;
  }

  /** Bytes of cached masks. */
  get maskBytes(): number {
    return this.#cache.numBytes;
  }

  /** Call `release` afterwards. */
  open(grammar: CompiledGrammar): LoadedGrammar {
    const { id } = grammar;
    const entry = this.#entries.get(id) ?? this.#load(grammar);
    this.#entries.delete(id);
    this.#entries.set(id, entry);
    entry.numUsers++;
    return entry;
  }

  release({ id }: CompiledGrammar): void {
    this.#entries.get(id)!.numUsers--;
    const idle = Array.from(this.#entries).filter(([, { numUsers }]) => numUsers === 0);
    for (const [idleId, { masks }] of idle.slice(0, -MAX_NUM_IDLE)) {
      this.#entries.delete(idleId);
      masks.clear();
    }
  }

  #load({ program, vocabulary: { tries, vocabSize } }: CompiledGrammar): Entry {
    const meter = new WorkMeter();
    const recognizer = new Recognizer(program, meter);
    const masks = new TokenMasks({ recognizer, tries, vocabSize, meter, cache: this.#cache });
    return { recognizer, masks, meter, numUsers: 0 };
  }
}
