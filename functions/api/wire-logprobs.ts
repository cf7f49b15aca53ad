/** Logprobs as chat and plain completions report them. */
import type { DecodedLogprob, DecodedTokenLogprobs } from "../../engine/index.ts";

/** JSON has no minus infinity; vLLM's floor. */
const LEAST_LOGPROB = -9999;

interface ChatLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
}

export interface ChatLogprobs {
  readonly content: readonly (ChatLogprob & { readonly top_logprobs: readonly ChatLogprob[] })[];
}

export function toChatLogprobs(logprobs: readonly DecodedTokenLogprobs[]): ChatLogprobs {
  return {
    content: logprobs.map(({ sampled, top }) => ({
      ...toChatLogprob(sampled),
      top_logprobs: top.map(toChatLogprob),
    })),
  };
}

function toChatLogprob({ token, logprob, bytes }: DecodedLogprob): ChatLogprob {
  return { token, logprob: Math.max(logprob, LEAST_LOGPROB), bytes };
}

export interface CompletionLogprobs {
  readonly tokens: readonly string[];
  readonly token_logprobs: readonly number[];
  /** The sampled token is always among them. */
  readonly top_logprobs: readonly Readonly<Record<string, number>>[];
  /** Characters from the start of the returned text. */
  readonly text_offset: readonly number[];
}

/** `textOffset` is where the first token's text starts. */
export function toCompletionLogprobs(
  logprobs: readonly DecodedTokenLogprobs[],
  textOffset: number,
): CompletionLogprobs {
  let nextOffset = textOffset;
  return {
    tokens: logprobs.map(({ sampled }) => sampled.token),
    token_logprobs: logprobs.map(({ sampled }) => Math.max(sampled.logprob, LEAST_LOGPROB)),
    // Entries may share a text (U+FFFD); the likelier one is written last and stays.
    top_logprobs: logprobs.map(({ sampled, top }) =>
      Object.fromEntries(
        [...top, sampled]
          .sort((first, second) => first.logprob - second.logprob)
          .map(({ token, logprob }) => [token, Math.max(logprob, LEAST_LOGPROB)]),
      ),
    ),
    text_offset: logprobs.map(({ sampled }) => {
      const offset = nextOffset;
      nextOffset += sampled.token.length;
      return offset;
    }),
  };
}
