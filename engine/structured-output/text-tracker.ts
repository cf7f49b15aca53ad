/** Follows a text that comes in pieces of bytes through a language. */
import type { Recognizer, TextPosition } from "./recognizer.ts";

/** Not changed any more. */
export interface TrackedText {
  /** After the last whole character. */
  readonly at: TextPosition;
  /** The first bytes of a character whose other bytes are still to come; most often none. */
  readonly partialCharacter: Uint8Array;
}

const noBytes = new Uint8Array();

/** Before the first byte. */
export function startText(recognizer: Recognizer): TrackedText {
  return { at: recognizer.start, partialCharacter: noBytes };
}

/** Whether the text may end here. */
export function canEnd({ at, partialCharacter }: TrackedText): boolean {
  return at.canEnd && partialCharacter.length === 0;
}

/**
 * Null when no text of the language goes on with the bytes, as far as they are whole characters. Throws what the
 * recognizer throws.
 */
export function advanceText(recognizer: Recognizer, text: TrackedText, bytes: Uint8Array): TrackedText | null {
  const { partialCharacter } = text;
  const all = partialCharacter.length === 0 ? bytes : Buffer.concat([partialCharacter, bytes]);
  const numWhole = all.length - numPartialBytes(all);
  const characters = decode(all.subarray(0, numWhole));
  if (characters === null) return null;
  let at: TextPosition | null = text.at;
  for (const character of characters) {
    at = recognizer.advance(at, character.codePointAt(0)!);
    if (at === null) return null;
  }
  return { at, partialCharacter: numWhole === all.length ? noBytes : all.slice(numWhole) };
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Null for what is no UTF-8. */
function decode(bytes: Uint8Array): string | null {
  try {
    return utf8.decode(bytes);
  } catch {
    return null;
  }
}

/** At the end of `bytes`: those of a character that has more of them than there are. */
function numPartialBytes(bytes: Uint8Array): number {
  for (let numBytes = 1; numBytes <= Math.min(3, bytes.length); numBytes++) {
    const byte = bytes[bytes.length - numBytes];
    if (byte < 0x80) return 0;
    if (byte >= 0xc0) return numBytes < (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) ? numBytes : 0;
  }
  return 0;
}
