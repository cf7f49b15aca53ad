/** Decodes the token ids of logprobs and prompts into text. */
import type {
  DecodedLogprob,
  DecodedPrompt,
  DecodedTokenLogprobs,
  SampledLogprobs,
} from "../contract/request-output.ts";
import type { Vocabulary } from "../text/vocabulary.ts";

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
): Token & Pick<DecodedLogprob, "token" | "bytes"> {
  const bytes = vocabulary.tokenBytes(token.tokenId);
  return { ...token, token: Buffer.from(bytes).toString(), bytes: [...bytes] };
}
