/** Follows sets of characters and lists of words byte by byte in UTF-8. */
import { FIRST_SURROGATE, LAST_CODE_POINT, LAST_SURROGATE } from "./code-point-set.ts";
import { nodeKinds, recordOf } from "./program.ts";
import type { Program } from "./program.ts";

/** Progress of a text in a set or a list of words. Equal states of a program are one object. */
export interface ByteState {
  readonly id: number;
  /** Whether a character of the set or a word of the list ends here. */
  readonly canEnd: boolean;
  /** Whether another byte can follow. */
  readonly goesOn: boolean;
  /** Null if the byte cannot follow. */
  next(byte: number): ByteState | null;
}

/** Mutable. Creates states as they are reached, and keeps them until `clear`. */
export class ByteStates {
  readonly #program: Program;
  readonly #starts = new Map<number, ByteState>();
  /** States within a character, by set, first code point and number of remaining bytes. */
  readonly #characters = new Map<string, ByteState>();
  readonly #ended: ByteState;
  #numCreated = 0;
  #numKept = 0;

  constructor(program: Program) {
    this.#program = program;
    this.#ended = { id: this.#numCreated++, canEnd: true, goesOn: false, next: () => null };
  }

  /** Number of states kept. */
  get size(): number {
    return this.#numKept;
  }

  /** The state before the first byte of a node that is a set or a list of words. */
  startOf(node: number): ByteState {
    let state = this.#starts.get(node);
    if (state === undefined) {
      const [kind, first, end] = recordOf(this.#program.nodes, node);
      state = kind === nodeKinds.set ? this.#startOfSet(first, end) : this.#withinWords(first, end, 0);
      this.#starts.set(node, state);
    }
    return state;
  }

  clear(): void {
    this.#starts.clear();
    this.#characters.clear();
    this.#numKept = 0;
  }

  #remember(canEnd: boolean, goesOn: boolean, toNext: (byte: number) => ByteState | null): ByteState {
    const known = new Map<number, ByteState | null>();
    this.#numKept++;
    const next = (byte: number): ByteState | null => {
      let state = known.get(byte);
      if (state === undefined) known.set(byte, (state = toNext(byte)));
      return state;
    };
    return { id: this.#numCreated++, canEnd, goesOn, next };
  }

  #startOfSet(first: number, end: number): ByteState {
    return this.#remember(false, true, (byte) => {
      if (byte < 0x80) return this.#covers(first, end, byte, byte) === "none" ? null : this.#ended;
      if (byte >= 0xc2 && byte < 0xe0) return this.#withinCharacter(first, end, (byte & 0x1f) << 6, 1);
      if (byte >= 0xe0 && byte < 0xf0) return this.#withinCharacter(first, end, (byte & 0x0f) << 12, 2);
      if (byte >= 0xf0 && byte < 0xf5) return this.#withinCharacter(first, end, (byte & 0x07) << 18, 3);
      return null;
    });
  }

  /**
   * The state within a character whose code point is `base` so far, with `numBytes` continuation bytes of six bits
   * left. If every continuation is possible, all sets share one state.
   */
  #withinCharacter(first: number, end: number, base: number, numBytes: number): ByteState | null {
    const last = base + 2 ** (6 * numBytes) - 1;
    // Excludes overlong forms, surrogates and code points past the end.
    let [least, most] = [
      Math.max(base, numBytes === 2 ? 0x800 : numBytes === 3 ? 0x1_00_00 : 0),
      Math.min(last, LAST_CODE_POINT),
    ];
    if (least >= FIRST_SURROGATE && least <= LAST_SURROGATE) least = LAST_SURROGATE + 1;
    if (most >= FIRST_SURROGATE && most <= LAST_SURROGATE) most = FIRST_SURROGATE - 1;
    if (least > most) return null;
    const coverage = this.#covers(first, end, least, most);
    if (coverage === "none") return null;
    const isFree = coverage === "all" && least === base && most === last;
    const key = isFree ? `${numBytes}` : `${first}:${base}:${numBytes}`;
    let state = this.#characters.get(key);
    if (state === undefined) {
      state = this.#remember(false, true, (byte) => {
        if (byte < 0x80 || byte > 0xbf) return null;
        const code = base + ((byte & 0x3f) << (6 * (numBytes - 1)));
        if (code > most || code + 2 ** (6 * (numBytes - 1)) <= least) return null;
        if (numBytes > 1) return this.#withinCharacter(first, end, code, numBytes - 1);
        return this.#covers(first, end, code, code) === "none" ? null : this.#ended;
      });
      this.#characters.set(key, state);
    }
    return state;
  }

  /** How much of `least` to `most` the ranges `first` to `end` cover. */
  #covers(first: number, end: number, least: number, most: number): "none" | "some" | "all" {
    const { ranges } = this.#program;
    // Binary search for the first range that does not end earlier.
    let [low, high] = [first, end];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ranges[2 * middle + 1]! < least) low = middle + 1;
      else high = middle;
    }
    if (low === end || ranges[2 * low]! > most) return "none";
    return ranges[2 * low]! <= least && ranges[2 * low + 1]! >= most ? "all" : "some";
  }

  /** The state within words that are equal up to `depth`. */
  #withinWords(first: number, end: number, depth: number): ByteState {
    const canEnd = this.#wordLength(first) === depth;
    const begin = canEnd ? first + 1 : first;
    return this.#remember(canEnd, begin < end, (byte) => {
      const from = this.#firstWordFrom(begin, end, depth, byte);
      const to = this.#firstWordFrom(from, end, depth, byte + 1);
      return from === to ? null : this.#withinWords(from, to, depth + 1);
    });
  }

  #firstWordFrom(first: number, end: number, depth: number, byte: number): number {
    const { wordBytes } = this.#program;
    let [low, high] = [first, end];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (wordBytes[this.#wordStart(middle) + depth]! < byte) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #wordStart(word: number): number {
    return word === 0 ? 0 : this.#program.wordEnds[word - 1]!;
  }

  #wordLength(word: number): number {
    return this.#program.wordEnds[word]! - this.#wordStart(word);
  }
}
