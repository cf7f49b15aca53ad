/** The part of a vocabulary that decoding needs. */
export interface Vocabulary {
  /** The token's text as UTF-8; empty for an id without a token. */
  tokenBytes(tokenId: number): Uint8Array;
  isSpecial(tokenId: number): boolean;
}
