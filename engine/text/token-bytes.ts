/**
 * The UTF-8 bytes that a single token adds to the text (a tokenizer.json decoder applied to one token), and the text of
 * an output from the bytes of its tokens as they arrive.
 */
import { EngineError } from "../contract/errors.ts";
import type { TokenizerComponent } from "./tokenizer-json.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** One rule of a decoder. Receives the token's text so far and returns text or bytes. */
type Rule = (token: string) => string | Uint8Array;

const byteTokenPattern = /^<0x([0-9A-Fa-f]{2})>$/;
const encoder = new TextEncoder();

/**
 * Maps tokens to bytes whose concatenation is the text that Hugging Face decodes after a prompt. Rules for the very
 * start of a text (`Strip` after `Fuse`, Metaspace's first space) therefore do not apply. Throws `unsupported_model`
 * for a decoder whose tokens depend on their neighbours.
 */
export function createTokenBytes(decoder: TokenizerComponent | null): (token: string) => Uint8Array {
  const rules = decoder === null ? [] : rulesOf(decoder);
  return (token) => {
    let text = token;
    for (const rule of rules) {
      const result = rule(text);
      if (typeof result !== "string") return result;
      text = result;
    }
    return encoder.encode(text);
  };
}

function rulesOf(decoder: TokenizerComponent): Rule[] {
  switch (decoder.type) {
    case "Sequence":
      return ((decoder.decoders ?? []) as TokenizerComponent[]).flatMap(rulesOf);
    case "ByteLevel":
      return [byteLevelRule];
    case "ByteFallback":
      return [byteFallbackRule];
    case "Replace":
      return [replaceRule(decoder)];
    case "Metaspace": {
      const replacement = typeof decoder.replacement === "string" ? decoder.replacement : "▁";
      return [(token) => token.replaceAll(replacement, " ")];
    }
    case "Fuse":
    case "Strip":
      return [];
    default:
      throw new EngineError("unsupported_model", `The tokenizer's decoder "${decoder.type}" is not supported.`);
  }
}

function replaceRule(decoder: TokenizerComponent): Rule {
  const pattern = decoder.pattern as { readonly String?: unknown } | undefined;
  const { content } = decoder;
  if (typeof pattern?.String !== "string" || typeof content !== "string") {
    throw new EngineError("unsupported_model", 'The tokenizer\'s decoder "Replace" is supported only for strings.');
  }
  const target = pattern.String;
  return (token) => token.replaceAll(target, () => content);
}

function byteFallbackRule(token: string): string | Uint8Array {
  const match = byteTokenPattern.exec(token);
  return match === null ? token : Uint8Array.of(Number.parseInt(match[1]!, 16));
}

/**
 * GPT-2's printable alphabet for bytes: printable Latin-1 characters stand for themselves, and the characters from
 * U+0100 on for the other 68 bytes in order. A token with any other character (an added token) is its own text.
 */
function byteLevelRule(token: string): string | Uint8Array {
  const bytes = new Uint8Array(token.length);
  for (let index = 0; index < token.length; index += 1) {
    const byte = byteOfCharacter.get(token.charCodeAt(index));
    if (byte === undefined) return token;
    bytes[index] = byte;
  }
  return bytes;
}

/** The printable alphabet for bytes, by byte. */
export const characterOfByte: readonly string[] = (() => {
  let numShifted = 0;
  return Array.from({ length: 256 }, (_, byte) => {
    const isPrintable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    return String.fromCharCode(isPrintable ? byte : 0x100 + numShifted++);
  });
})();
const byteOfCharacter: ReadonlyMap<number, number> = new Map(
  characterOfByte.map((character, byte) => [character.charCodeAt(0), byte]),
);

/**
 * Decodes each token once. Tokens are a stream of UTF-8 bytes, of which only whole characters are emitted. The texts of
 * all calls together equal the text of all tokens, however they are divided. Invalid UTF-8 becomes U+FFFD, and so does
 * an incomplete character at the end.
 */
export class IncrementalDetokenizer {
  readonly #vocabulary: Vocabulary;
  readonly #skipsSpecialTokens: boolean;
  // A byte order mark from the model is ordinary text.
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor(vocabulary: Vocabulary, options: { readonly skipSpecialTokens: boolean }) {
    this.#vocabulary = vocabulary;
    this.#skipsSpecialTokens = options.skipSpecialTokens;
  }

  /** Returns the characters that `tokenId` completes; "" while a character is incomplete. */
  append(tokenId: number): string {
    if (this.#skipsSpecialTokens && this.#vocabulary.isSpecial(tokenId)) return "";
    return this.#decoder.decode(this.#vocabulary.tokenBytes(tokenId), { stream: true });
  }

  /** Returns U+FFFD for an incomplete character, and resets the detokenizer. */
  finish(): string {
    return this.#decoder.decode();
  }
}
