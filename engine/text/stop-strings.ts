/** Finds stop strings in text that arrives in pieces, and holds back a possible beginning of one. */

export interface StopStringOptions {
  readonly stop: readonly string[];
  /** Whether the stop string that ends the text is part of it. */
  readonly includeInOutput: boolean;
}

export interface StopStringResult {
  /** Text that can no longer change. */
  readonly text: string;
  /** The stop string that ended the text, or null. */
  readonly matched: string | null;
}

/**
 * Ends the text at the match that completes first; if several complete together, the first in the list. A match must
 * end within the newest piece, so unchecked text is never cut. Until the text ends, its last `longest - 1` characters
 * are held back, or none if a stop string is part of the output.
 */
export class StopStrings {
  readonly #stop: readonly string[];
  readonly #includesInOutput: boolean;
  readonly #numHeldBack: number;
  /** Maximum number of a match's characters before the newest piece. */
  readonly #overlap: number;
  /** The end of the text so far: at least its last `overlap` characters, if it has as many. */
  #tail = "";
  /** Number of characters at the end of `#tail` that the caller has not received. */
  #numPending = 0;

  constructor(options: StopStringOptions) {
    this.#stop = options.stop;
    this.#includesInOutput = options.includeInOutput;
    this.#overlap = Math.max(0, ...options.stop.map((text) => text.length - 1));
    this.#numHeldBack = options.includeInOutput ? 0 : this.#overlap;
  }

  /** `isChecked` is false for exempt text (too few tokens so far): a match may only begin in it. */
  append(piece: string, isChecked: boolean): StopStringResult {
    const text = this.#tail + piece;
    const given = this.#tail.length - this.#numPending;
    const match = isChecked && piece !== "" ? this.#firstMatch(text, this.#tail.length) : null;
    if (match !== null) {
      const end = this.#includesInOutput ? match.end : match.end - match.stop.length;
      this.#tail = "";
      this.#numPending = 0;
      return { text: text.slice(given, end), matched: match.stop };
    }
    const certain = wholeCharacters(text, Math.max(given, text.length - this.#numHeldBack));
    const tailStart = Math.min(certain, Math.max(0, text.length - this.#overlap));
    this.#tail = text.slice(tailStart);
    this.#numPending = text.length - certain;
    return { text: text.slice(given, certain), matched: null };
  }

  /** Returns the text held back, when the text ends for another reason. */
  finish(): string {
    const text = this.#tail.slice(this.#tail.length - this.#numPending);
    this.#tail = "";
    this.#numPending = 0;
    return text;
  }

  /** The match that ends first after `newFrom`. */
  #firstMatch(text: string, newFrom: number): { readonly stop: string; readonly end: number } | null {
    let first: { readonly stop: string; readonly end: number } | null = null;
    for (const stop of this.#stop) {
      const start = text.indexOf(stop, Math.max(0, newFrom + 1 - stop.length));
      if (start === -1) continue;
      const end = start + stop.length;
      if (first === null || end < first.end) first = { stop, end };
    }
    return first;
  }
}

/** `end`, moved back by one if it would split a surrogate pair. */
function wholeCharacters(text: string, end: number): number {
  const isInPair = end > 0 && end < text.length && (text.charCodeAt(end - 1) & 0xfc00) === 0xd800;
  return isInPair ? end - 1 : end;
}
