/** Logprobs in the formats of chat and text completions. */
import { setImmediate as nextTurn } from "node:timers/promises";

import { LEAST_LOGPROB } from "../../engine/index.ts";
import type { DecodedLogprob, DecodedPrompt, DecodedTokenLogprobs } from "../../engine/index.ts";
import type { TextOffsets } from "./text-offsets.ts";

/** Tokens with up to 20 alternatives, which take a few milliseconds. */
const TOKENS_PER_TURN = 256;

interface ChatLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
}

export interface ChatLogprobs {
  readonly content: readonly (ChatLogprob & { readonly top_logprobs: readonly ChatLogprob[] })[];
  /** No model here marks refusals, but OpenAI's schema requires the field. */
  readonly refusal: null;
}

/** `asIds` writes `token_id:<id>` instead of the text; bytes are the text's in both cases. */
export function toChatLogprobs(logprobs: readonly DecodedTokenLogprobs[], asIds: boolean): ChatLogprobs {
  const toChatLogprob = (entry: DecodedLogprob): ChatLogprob => {
    return { token: nameOf(entry, asIds), logprob: floored(entry.logprob), bytes: entry.bytes };
  };
  return {
    content: logprobs.map(({ sampled, top }) => ({
      ...toChatLogprob(sampled),
      top_logprobs: top.map(toChatLogprob),
    })),
    refusal: null,
  };
}

function nameOf({ tokenId, token }: Pick<DecodedLogprob, "tokenId" | "token">, asIds: boolean): string {
  return asIds ? `token_id:${tokenId}` : token;
}

/** A token of a text with its logprobs, which the first token of a prompt does not have. */
export interface TokenEntry {
  readonly tokenId: number;
  readonly token: string;
  readonly bytes: readonly number[];
  /** Of the text that the token stands for, where these are not `bytes`. */
  readonly textBytes?: readonly number[];
  readonly logprobs: DecodedTokenLogprobs | null;
}

export function tokenEntries(logprobs: readonly DecodedTokenLogprobs[]): TokenEntry[] {
  return logprobs.map((entry) => ({
    tokenId: entry.sampled.tokenId,
    token: entry.sampled.token,
    bytes: entry.sampled.bytes,
    ...(entry.isLeftOut && { textBytes: [] }),
    logprobs: entry,
  }));
}

export function promptTokenEntries({ tokens, logprobs }: DecodedPrompt): TokenEntry[] {
  return tokens.map((token, index) => ({ ...token, logprobs: logprobs?.[index] ?? null }));
}

export interface CompletionLogprobs {
  readonly tokens: readonly string[];
  /** Null for the first token of an echoed prompt. */
  readonly token_logprobs: readonly (number | null)[];
  /** Always includes the sampled token. */
  readonly top_logprobs: readonly (Readonly<Record<string, number>> | null)[];
  /** In code points from the start of the returned text. Tokens that are parts of one character have its offset. */
  readonly text_offset: readonly number[];
}

/**
 * Takes several turns of the event loop for a long prompt that is echoed.
 *
 * @param offsets Those of the choice, which go on with each chunk of a stream.
 * @param asIds Writes `token_id:<id>` instead of the text.
 */
export async function toCompletionLogprobs(
  entries: readonly TokenEntry[],
  offsets: TextOffsets,
  asIds: boolean,
): Promise<CompletionLogprobs> {
  const tokens: string[] = [];
  const tokenLogprobs: (number | null)[] = [];
  const topLogprobs: (Readonly<Record<string, number>> | null)[] = [];
  const textOffsets: number[] = [];
  for (const entry of entries) {
    if (tokens.length > 0 && tokens.length % TOKENS_PER_TURN === 0) await nextTurn();
    const { bytes, textBytes = bytes, logprobs } = entry;
    tokens.push(nameOf(entry, asIds));
    tokenLogprobs.push(logprobs === null ? null : floored(logprobs.sampled.logprob));
    topLogprobs.push(logprobs === null ? null : toTopLogprobs(logprobs, asIds));
    textOffsets.push(offsets.next(textBytes));
  }
  return { tokens, token_logprobs: tokenLogprobs, top_logprobs: topLogprobs, text_offset: textOffsets };
}

/** Entries may have the same text (U+FFFD). The likelier one is written last and stays. */
function toTopLogprobs({ sampled, top }: DecodedTokenLogprobs, asIds: boolean): Readonly<Record<string, number>> {
  return Object.fromEntries(
    [...top, sampled]
      .sort((first, second) => first.logprob - second.logprob)
      .map((entry) => [nameOf(entry, asIds), floored(entry.logprob)]),
  );
}

interface PromptLogprob {
  readonly logprob: number;
  readonly rank: number;
  readonly decoded_token: string;
}

export type PromptLogprobs = readonly (Readonly<Record<string, PromptLogprob>> | null)[];

/**
 * vLLM's `prompt_logprobs`: for each token of the prompt but the first, the alternatives and the token itself, by token
 * id. Takes several turns of the event loop for a long prompt.
 */
export async function toPromptLogprobs(logprobs: readonly (DecodedTokenLogprobs | null)[]): Promise<PromptLogprobs> {
  const rows: (Record<string, PromptLogprob> | null)[] = [];
  for (const entry of logprobs) {
    if (rows.length > 0 && rows.length % TOKENS_PER_TURN === 0) await nextTurn();
    rows.push(entry === null ? null : toRow(entry));
  }
  return rows;
}

function toRow({ sampled, top }: DecodedTokenLogprobs): Record<string, PromptLogprob> {
  const row: Record<string, PromptLogprob> = {};
  for (const { tokenId, logprob, rank, token } of [sampled, ...top]) {
    row[String(tokenId)] = { logprob: floored(logprob), rank, decoded_token: token };
  }
  return row;
}

function floored(logprob: number): number {
  return Math.max(logprob, LEAST_LOGPROB);
}
