/** Cuts long texts into pieces, so that the event loop runs between them. */

/**
 * Characters encoded at once, in 2 to 15 ms. The event loop runs between pieces, so a prompt of a million characters
 * delays no other request.
 */
export const PIECE_LENGTH = 4096;
/**
 * Limit of what is divided into words at once. Longer pieces, of which ordinary text has none, would keep the event loop
 * for seconds.
 */
export const MAX_PIECE_LENGTH = 2 ** 20;
/** A longer word, of which ordinary text has none, would keep the event loop for seconds. */
export const MAX_WORD_LENGTH = 2 ** 18;
/** A space between letters, where a piece may end: every known pre-tokenizer starts a word there. */
const wordStart = /\p{L}(?=[ ▁]\p{L})/u;

/** Normalised text between added tokens. */
export interface Piece {
  readonly text: string;
  /** Whether it starts the text, where some tokenizers add a space. */
  readonly beginsText: boolean;
}

/** A text without such a place for `MAX_PIECE_LENGTH` characters is a piece to its end. */
export function* cutAtWords(text: string, beginsText: boolean): Iterable<Piece> {
  let start = 0;
  for (let end = nextEnd(text, 0); end !== null; end = nextEnd(text, end)) {
    yield { text: text.slice(start, end), beginsText: beginsText && start === 0 };
    start = end;
  }
  yield { text: text.slice(start), beginsText: beginsText && start === 0 };
}

/** The end of the piece that starts at `start`; null if the rest of the text is one. */
function nextEnd(text: string, start: number): number | null {
  const searched = text.slice(start + PIECE_LENGTH, start + MAX_PIECE_LENGTH);
  const match = wordStart.exec(searched);
  return match === null ? null : start + PIECE_LENGTH + match.index + match[0].length;
}
