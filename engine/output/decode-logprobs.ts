/** Decodes the token ids of logprobs and prompts into text. */
import type {
  DecodedLogprob,
  DecodedPrompt,
  DecodedTokenLogprobs,
  SampledLogprobs,
  TokenLogprob,
} from "../contract/request-output.ts";
import { SharedTurns } from "../text/shared-turns.ts";
import type { Vocabulary } from "../text/vocabulary.ts";
import { TextAlignment } from "./text-alignment.ts";
import type { AlignedPrompt } from "./text-alignment.ts";

type DecodedTokenText = Pick<DecodedLogprob, "token" | "bytes">;

/** Tokens of a prompt that are decoded at once, with all alternatives. */
const TOKENS_PER_PIECE = 64;
/**
 * Prompts that are decoded at the same time share the turns of the event loop: the alternatives of 16,000 tokens would
 * occupy it for half a second. An entry takes about a microsecond.
 */
const turns = new SharedTurns(4096);

/** Tokens whose texts are kept, in up to 10 MB. */
const MAX_KEPT_TOKENS = 32_768;

/**
 * Answers have up to 20 alternatives for each token, and slow readers leave them in memory. The alternatives share the
 * texts and bytes of tokens, which would otherwise take most of 9 KB for each token of an answer.
 */
const decodedTexts = new WeakMap<Vocabulary, Map<number, DecodedTokenText>>();

/** A prompt that an output returns. `text` is that of the request, or the decoded tokens. */
export type PromptTokens = AlignedPrompt;

export function decodeLogprobs({ sampled, top }: SampledLogprobs, vocabulary: Vocabulary): DecodedTokenLogprobs {
  return { sampled: decodeLogprob(sampled, vocabulary), top: top.map((logprob) => decodeLogprob(logprob, vocabulary)) };
}

/**
 * Takes several turns of the event loop for a long prompt.
 *
 * @param logprobs For every token but the first; null if not requested.
 */
export async function decodePrompt(
  prompt: PromptTokens,
  logprobs: readonly SampledLogprobs[] | null,
  vocabulary: Vocabulary,
): Promise<DecodedPrompt> {
  const tokens: DecodedPrompt["tokens"][number][] = [];
  const decoded: (DecodedTokenLogprobs | null)[] = [];
  const { text, tokenIds } = prompt;
  const alignment = await alignText(prompt, vocabulary);
  const entriesPerToken = 1 + (logprobs?.[0] === undefined ? 0 : 1 + logprobs[0].top.length);
  for (let start = 0; start < tokenIds.length; start += TOKENS_PER_PIECE) {
    await turns.take(TOKENS_PER_PIECE * entriesPerToken);
    for (const [index, tokenId] of tokenIds.slice(start, start + TOKENS_PER_PIECE).entries()) {
      const textBytes = alignment.bytesOf(start + index);
      tokens.push({ tokenId, ...decodedTextOf(tokenId, vocabulary), ...(textBytes !== null && { textBytes }) });
      const own = logprobs?.[start + index - 1];
      decoded.push(own === undefined ? null : decodeLogprobs(own, vocabulary));
    }
  }
  return { text, tokens, logprobs: logprobs === null ? null : decoded };
}

async function alignText(prompt: PromptTokens, vocabulary: Vocabulary): Promise<TextAlignment> {
  const alignment = new TextAlignment(prompt, vocabulary);
  const { length } = prompt.tokenIds;
  for (let start = 0; start < length; start += TOKENS_PER_PIECE) {
    await turns.take(TOKENS_PER_PIECE);
    alignment.alignUntil(Math.min(start + TOKENS_PER_PIECE, length));
  }
  alignment.finish();
  return alignment;
}

/** Without spreads, which take most of the time for the alternatives of a long prompt. */
function decodeLogprob({ tokenId, logprob, rank }: TokenLogprob, vocabulary: Vocabulary): DecodedLogprob {
  const { token, bytes } = decodedTextOf(tokenId, vocabulary);
  return { tokenId, logprob, rank, token, bytes };
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
