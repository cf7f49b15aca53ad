/** The text of every token, from a checkpoint's tokenizer.json. */
import { readFileSync } from "node:fs";
import { join } from "node:path";

interface TokenizerFile {
  readonly model: { readonly vocab: Readonly<Record<string, number>> };
  readonly added_tokens?: readonly { readonly id: number; readonly special: boolean }[];
  readonly decoder?: unknown;
}

/** By token id: UTF-8, in part if the token is a part of a character; null for special and unknown tokens. */
export function readTokenBytes(model: string): (Uint8Array | null)[] {
  const tokenizer = JSON.parse(readFileSync(join(model, "tokenizer.json"), "utf8")) as TokenizerFile;
  const bytesOf = JSON.stringify(tokenizer.decoder ?? {}).includes("ByteLevel") ? byteLevelBytes() : sentencePieceBytes;
  const tokens: (Uint8Array | null)[] = [];
  for (const [token, tokenId] of Object.entries(tokenizer.model.vocab)) tokens[tokenId] = bytesOf(token);
  for (const { id, special } of tokenizer.added_tokens ?? []) if (special) tokens[id] = null;
  return Array.from(tokens, (bytes) => bytes ?? null);
}

/** SentencePiece writes a space as U+2581 and a single byte as <0x0A>. */
function sentencePieceBytes(token: string): Uint8Array {
  const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
  return byte === null
    ? new TextEncoder().encode(token.replaceAll("\u2581", " "))
    : Uint8Array.of(Number(`0x${byte[1]}`));
}

/** Byte-level BPE writes printable bytes as they are, and the n-th other byte as U+0100 + n. */
function byteLevelBytes(): (token: string) => Uint8Array {
  const byteOf = new Map<string, number>();
  let numOthers = 0;
  for (let byte = 0; byte < 256; byte++) {
    const isPrintable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    byteOf.set(String.fromCodePoint(isPrintable ? byte : 0x100 + numOthers++), byte);
  }
  return (token) => Uint8Array.from(token, (character) => byteOf.get(character) ?? 0x3f);
}
