/** Decodes the token ids of logprobs and prompts into text. */
import type {
  DecodedLogprob,
  DecodedPrompt,
  DecodedTokenLogprobs,
  SampledLogprobs,
} from "../contract/request-output.ts";
import type { Vocabulary } from "../text/vocabulary.ts";

type DecodedTokenText = Pick<DecodedLogprob, "token" | "bytes">;

/** Tokens whose texts are kept, in up to 10 MB. */
const MAX_KEPT_TOKENS = 32_768;

/**
 * Answers have up to 20 alternatives for each token, and slow readers leave them in memory. The alternatives share the
 * texts and bytes of tokens, which would otherwise take most of 9 KB for each token of an answer.
 */
const decodedTexts = new WeakMap<Vocabulary, Map<number, DecodedTokenText>>();

/** A prompt that an output returns. */
export interface PromptTokens {
  /** The text of the request, or the decoded tokens. */
  readonly text: string;
  readonly tokenIds: readonly number[];
}

export function decodeLogprobs({ sampled, top }: SampledLogprobs, vocabulary: Vocabulary): DecodedTokenLogprobs {
  return { sampled: decodeToken(sampled, vocabulary), top: top.map((logprob) => decodeToken(logprob, vocabulary)) };
}

/** @param logprobs For every token but the first; null if not requested. */
export function decodePrompt(
  { text, tokenIds }: PromptTokens,
  logprobs: readonly SampledLogprobs[] | null,
  vocabulary: Vocabulary,
): DecodedPrompt {
  return {
    text,
    tokens: tokenIds.map((tokenId) => decodeToken({ tokenId }, vocabulary)),
    logprobs: logprobs === null ? null : [null, ...logprobs.map((logprob) => decodeLogprobs(logprob, vocabulary))],
  };
}

function decodeToken<Token extends { readonly tokenId: number }>(
  token: Token,
  vocabulary: Vocabulary,
): Token & DecodedTokenText {
  return { ...token, ...decodedTextOf(token.tokenId, vocabulary) };
}

function decodedTextOf(tokenId: number, vocabulary: Vocabulary): DecodedTokenText {
  let kept = decodedTexts.get(vocabulary);
  if (kept === undefined) decodedTexts.set(vocabulary, (kept = new Map()));
  let decoded = kept.get(tokenId);
  if (decoded === undefined) {
    const bytes = vocabulary.tokenBytes(tokenId);
    decoded = { token: Buffer.from(bytes).toString(), bytes: [...bytes] };
    if (kept.size >= MAX_KEPT_TOKENS) kept.clear();
    kept.set(tokenId, decoded);
  }
  return decoded;
}
