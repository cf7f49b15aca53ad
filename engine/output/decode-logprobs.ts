/** Token ids of logprobs and prompts, in words. */
import type {
  DecodedLogprob,
  DecodedPrompt,
  DecodedTokenLogprobs,
  SampledLogprobs,
} from "../contract/request-output.ts";
import type { Vocabulary } from "../text/tokenizer.ts";

/** A prompt that an output is to tell of. */
export interface PromptTokens {
  /** As the request gave it, or decoded. */
  readonly text: string;
  readonly tokenIds: readonly number[];
}

export function decodeLogprobs({ sampled, top }: SampledLogprobs, vocabulary: Vocabulary): DecodedTokenLogprobs {
  return { sampled: decodeToken(sampled, vocabulary), top: top.map((logprob) => decodeToken(logprob, vocabulary)) };
}

/** @param logprobs Of every token but the first; null where nobody asks for them. */
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
