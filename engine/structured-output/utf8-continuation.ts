/**
 * The parts of UTF-8 that XGrammar does not watch over: it takes any first byte with the right number of continuations
 * for a character, also the overlong forms, the surrogates and what lies past U+10FFFF.
 */

const firstContinuation = 0x80;
const lastContinuation = 0xbf;

/** After most first bytes any continuation may follow; null for those. */
function secondByteRange(firstByte: number): readonly [first: number, last: number] | null {
  switch (firstByte) {
    case 0xe0:
      return [0xa0, lastContinuation];
    case 0xed:
      return [firstContinuation, 0x9f];
    case 0xf0:
      return [0x90, lastContinuation];
    case 0xf4:
      return [firstContinuation, 0x8f];
    default:
      return null;
  }
}

/** Whether some continuations must not follow the byte. */
export function isPickyFirstByte(byte: number): boolean {
  return secondByteRange(byte) !== null;
}

/** Whether `second` must not follow `first`, as far as the grammar engine does not see to it. */
export function isWrongContinuation(first: number, second: number): boolean {
  const range = secondByteRange(first);
  return range !== null && (second < range[0] || second > range[1]);
}

/** Whether the bytes occur in no text at all, however they are continued. */
export function isNeverInUtf8(bytes: Uint8Array): boolean {
  return bytes.some(
    (byte, index) =>
      byte === 0xc0 || byte === 0xc1 || byte >= 0xf5 || (index > 0 && isWrongContinuation(bytes[index - 1], byte)),
  );
}
