/** Finds a tokenizer's added tokens (including special tokens) in text, before normalisation and BPE; special tokens can be text for a request. */
import type { Vocabulary } from "./vocabulary.ts";

export interface AddedToken {
  readonly id: number;
  /** The searched text: the token's text, normalised if the token says so. */
  readonly content: string;
  /** Matches only without a word character next to it. */
  readonly singleWord: boolean;
  /** Includes the white space to its left or right in the match. */
  readonly stripLeft: boolean;
  readonly stripRight: boolean;
}

/** Half-open range of UTF-16 code units. */
export interface TextRange {
  readonly start: number;
  readonly end: number;
}

/** A part of the text, or the token found in its place. */
export type TextSection =
  | { readonly kind: "text"; readonly text: string; readonly start: number }
  | { readonly kind: "token"; readonly id: number }
  /** Nothing was found in a long part of the text: other work may be done before the search goes on. */
  | { readonly kind: "pause" };

/** Places where a token may begin that are searched at once, in up to ten milliseconds. */
const SEARCHED_AT_ONCE = 65_536;
const NUM_CODE_UNITS = 65_536;

interface TrieNode {
  readonly children: Map<number, TrieNode>;
  token: AddedToken | null;
}

const wordCharacterPattern = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]/u;
const whiteSpacePattern = /\p{White_Space}/u;

/**
 * Splits text like Hugging Face's `AddedVocabulary`: leftmost, longest, not overlapping. A match that its flags exclude
 * is skipped as a whole. Linear in the text for tokens of bounded length.
 */
export class AddedTokenSplitter {
  readonly #root: TrieNode = { children: new Map(), token: null };
  /** By code unit: 1 if a token may begin with it. Ordinary text is skipped without the trie. */
  readonly #isBeginning = new Uint8Array(NUM_CODE_UNITS);

  constructor(tokens: readonly AddedToken[]) {
    for (const token of tokens) {
      if (token.content === "") continue;
      let node = this.#root;
      for (let index = 0; index < token.content.length; index += 1) {
        const unit = token.content.charCodeAt(index);
        let child = node.children.get(unit);
        if (child === undefined) node.children.set(unit, (child = { children: new Map(), token: null }));
        node = child;
      }
      node.token = token;
    }
    for (const unit of this.#root.children.keys()) this.#isBeginning[unit] = 1;
  }

  /** `literal`: ranges in order whose added tokens are ordinary text. */
  *split(text: string, literal: readonly TextRange[] = []): Generator<TextSection> {
    let sectionStart = 0;
    let position = this.#nextBeginning(text, 0);
    let literalIndex = 0;
    for (let numSearched = 1; position < text.length; numSearched++) {
      if (numSearched % SEARCHED_AT_ONCE === 0) yield { kind: "pause" };
      while (literalIndex < literal.length && literal[literalIndex]!.end <= position) literalIndex += 1;
      const match = this.#longestMatchAt(text, position);
      if (match === null) {
        position = this.#nextBeginning(text, position + 1);
        continue;
      }
      const end = position + match.content.length;
      const isLiteral = literalIndex < literal.length && literal[literalIndex]!.start < end;
      if (isLiteral || (match.singleWord && touchesWord(text, position, end))) {
        position = end;
        continue;
      }
      const start = match.stripLeft ? trimmedEnd(text, sectionStart, position) : position;
      if (sectionStart < start) {
        yield { kind: "text", text: text.slice(sectionStart, start), start: sectionStart };
      }
      yield { kind: "token", id: match.id };
      position = match.stripRight ? trimmedStart(text, end) : end;
      sectionStart = position;
    }
    if (sectionStart < text.length) {
      yield { kind: "text", text: text.slice(sectionStart), start: sectionStart };
    }
  }

  /** The text's length if no token can begin from `position` on. */
  #nextBeginning(text: string, position: number): number {
    for (let index = position; index < text.length; index++) {
      if (this.#isBeginning[text.charCodeAt(index)] === 1) return index;
    }
    return text.length;
  }

  #longestMatchAt(text: string, position: number): AddedToken | null {
    let longest: AddedToken | null = null;
    let node: TrieNode | undefined = this.#root;
    for (let index = position; index < text.length; index += 1) {
      node = node.children.get(text.charCodeAt(index));
      if (node === undefined) break;
      if (node.token !== null) longest = node.token;
    }
    return longest;
  }
}

function touchesWord(text: string, start: number, end: number): boolean {
  return wordCharacterPattern.test(characterBefore(text, start)) || wordCharacterPattern.test(characterAt(text, end));
}

function characterAt(text: string, index: number): string {
  return index < text.length ? String.fromCodePoint(text.codePointAt(index) as number) : "";
}

function characterBefore(text: string, index: number): string {
  const isTrailingSurrogate = index > 1 && (text.charCodeAt(index - 1) & 0xfc00) === 0xdc00;
  return text.slice(Math.max(0, index - (isTrailingSurrogate ? 2 : 1)), index);
}

// White space is in the basic plane, so code units suffice here.
function trimmedEnd(text: string, from: number, to: number): number {
  let end = to;
  while (end > from && whiteSpacePattern.test(text[end - 1]!)) end -= 1;
  return end;
}

function trimmedStart(text: string, from: number): number {
  let start = from;
  while (start < text.length && whiteSpacePattern.test(text[start]!)) start += 1;
  return start;
}

/** A vocabulary in which these tokens are not special. */
export function withTextTokens(vocabulary: Vocabulary, textTokenIds: readonly number[]): Vocabulary {
  if (textTokenIds.length === 0) return vocabulary;
  return {
    tokenBytes: (tokenId) => vocabulary.tokenBytes(tokenId),
    isSpecial: (tokenId) => !textTokenIds.includes(tokenId) && vocabulary.isSpecial(tokenId),
  };
}
