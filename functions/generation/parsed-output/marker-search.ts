/** Finds markers in text that arrives in pieces, in time proportional to its length. */

export interface FoundMarker {
  readonly marker: string;
  /** White space before the marker. */
  readonly space: string;
  /** The text after the marker. */
  readonly rest: string;
}

/** Finds the first of several markers. White space before it is left out of the text. Mutable. */
export class MarkerSearch {
  readonly #markers: readonly string[];
  /** White space before `#begun`. Pieces are only added to it, because reading a text that was put together copies it. */
  #space = "";
  /** The end of the text, which a marker may begin with. */
  #begun = "";

  constructor(markers: readonly string[]) {
    this.#markers = markers;
  }

  /** Returns the text that has become certain, and the marker if the text now has one. The search is over with it. */
  append(piece: string): { readonly settled: string; readonly found: FoundMarker | null } {
    const text = this.#begun + piece;
    const first = firstOf(text, this.#markers);
    const end = first?.index ?? text.length - lengthOfBegunMarker(text, this.#markers);
    const kept = text.slice(0, end).trimEnd();
    let settled = "";
    if (kept !== "") {
      settled = this.#space + kept;
      this.#space = "";
    }
    this.#space += text.slice(kept.length, end);
    this.#begun = text.slice(end);
    if (first === null) return { settled, found: null };
    const { marker } = first;
    return { settled, found: { marker, space: this.#space, rest: this.#begun.slice(marker.length) } };
  }

  /** The rest of a text that ends without a marker. */
  finish(): string {
    return this.#space + this.#begun;
  }
}

/** Looks for a marker at the start of a text, after any white space. Mutable. */
export class LeadingMarkerSearch {
  readonly #marker: string;
  #space = "";
  #begun = "";

  constructor(marker: string) {
    this.#marker = marker;
  }

  /** Returns the text after the marker, or the whole text if it has none; null while more text may bring the marker. */
  append(piece: string, isComplete: boolean): { readonly isMarked: boolean; readonly text: string } | null {
    const text = this.#begun === "" ? piece.trimStart() : this.#begun + piece;
    if (this.#begun === "") this.#space += piece.slice(0, piece.length - text.length);
    this.#begun = text;
    if (text.startsWith(this.#marker)) return { isMarked: true, text: text.slice(this.#marker.length) };
    if (!isComplete && this.#marker.startsWith(text)) return null;
    return { isMarked: false, text: this.#space + text };
  }
}

function firstOf(text: string, markers: readonly string[]): { marker: string; index: number } | null {
  let first: { marker: string; index: number } | null = null;
  for (const marker of markers) {
    const index = text.indexOf(marker);
    if (index !== -1 && (first === null || index < first.index)) first = { marker, index };
  }
  return first;
}

/** Length of the longest end of the text that one of the markers starts with. */
export function lengthOfBegunMarker(text: string, markers: readonly string[]): number {
  const longest = markers.reduce((length, marker) => Math.max(length, marker.length - 1), 0);
  for (let length = Math.min(longest, text.length); length > 0; length--) {
    const end = text.slice(text.length - length);
    if (markers.some((marker) => marker.startsWith(end))) return length;
  }
  return 0;
}
