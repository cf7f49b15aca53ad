/**
 * Synthetic vocabularies of the size and structure of large byte-level ones, from syllables, punctuation and
 * characters.
 */

const onsets = ["", ...Array.from("bcdfghjklmnprstvwz"), "ch", "sh", "th", "st", "tr", "pr", "gr", "pl", "br", "cl"];
const vowels = [...Array.from("aeiou"), "ea", "ou", "ai", "io"];
const codas = ["", "", "n", "r", "s", "t", "l", "m", "nd", "ng", "st", "ck"];
const symbols = Array.from("!\"#$%&()*+,-./:;<=>?@[]^_`{|}~'\\");

/** Distinct tokens by id: the bytes, then the others, more frequent ones first. */
export function createTokens(vocabSize: number): Buffer[] {
  const tokens = new Map<string, Buffer>();
  const add = (bytes: Buffer): void => {
    if (tokens.size < vocabSize) tokens.set(bytes.toString("latin1"), bytes);
  };
  for (let byte = 0; byte < 256; byte++) add(Buffer.of(byte));
  for (const text of commonTexts()) add(Buffer.from(text));
  // A tenth are characters past ASCII, and parts of them.
  for (let index = 0; index < vocabSize / 30; index++) {
    const character = Buffer.from(String.fromCodePoint(0x4e00 + index));
    add(character);
    add(character.subarray(0, 2));
    add(Buffer.concat([character, Buffer.from(String.fromCodePoint(0x4e00 + ((index * 7919) % 8000)))]));
  }
  const words = wordsOf(vocabSize);
  for (let round = 0; tokens.size < vocabSize; round++) {
    for (const word of words) {
      if (tokens.size === vocabSize) break;
      const name = word[0]!.toUpperCase() + word.slice(1);
      add(Buffer.from([` ${word}`, word, ` ${name}`, name, `_${word}`, word.toUpperCase(), `.${word}`][round]!));
    }
  }
  return [...tokens.values()];
}

function* commonTexts(): Iterable<string> {
  for (const first of symbols) for (const second of symbols) yield first + second;
  yield* ['":', '",', '{"', '"}', '": "', '", "', '"},', '":["', '":{"', '"],', " {", ' "', " [", "\\n", "\\u", '\\"'];
  for (let length = 2; length <= 64; length++) {
    yield " ".repeat(length);
    yield `\n${" ".repeat(length - 1)}`;
    yield "=".repeat(length);
    yield "-".repeat(length);
  }
  for (let number = 0; number < 1000; number++) yield String(number);
  for (const symbol of symbols) yield ` ${symbol}`;
}

/** Words of one syllable, then two, then three. */
function wordsOf(count: number): string[] {
  const syllables = onsets.flatMap((onset) => vowels.flatMap((vowel) => codas.map((coda) => onset + vowel + coda)));
  const words = new Set(syllables);
  for (let index = 0; words.size < count; index++) {
    const parts = [
      syllables[(index * 31) % syllables.length],
      syllables[(index * 17 + (index >> 8)) % syllables.length],
    ];
    if (index % 3 === 0) parts.push(syllables[(index * 7) % syllables.length]);
    words.add(parts.join(""));
  }
  return [...words];
}

/** Tokenizes a text by the longest matching token. */
export class LongestMatch {
  readonly #idsByText = new Map<string, number>();
  #maxLength = 0;

  constructor(tokens: readonly Buffer[]) {
    for (const [id, bytes] of tokens.entries()) {
      this.#idsByText.set(bytes.toString("latin1"), id);
      this.#maxLength = Math.max(this.#maxLength, bytes.length);
    }
  }

  encode(text: string): number[] {
    const bytes = Buffer.from(text).toString("latin1");
    const ids: number[] = [];
    for (let start = 0; start < bytes.length;) {
      let length = this.#maxLength;
      while (!this.#idsByText.has(bytes.slice(start, start + length))) length--;
      ids.push(this.#idsByText.get(bytes.slice(start, start + length))!);
      start += Math.min(length, bytes.length - start);
    }
    return ids;
  }
}
