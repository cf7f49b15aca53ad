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

/** A prompt that an output returns. */
export interface PromptTokens {
  /** The text of the request, or the decoded tokens. */
  readonly text: string;
  readonly tokenIds: readonly number[];
}

export function decodeLogprobs({ sampled, top }: SampledLogprobs, vocabulary: Vocabulary): DecodedTokenLogprobs {
  return { sampled: decodeLogprob(sampled, vocabulary), top: top.map((logprob) => decodeLogprob(logprob, vocabulary)) };
}

/**
 * Takes several turns of the event loop for a long prompt.
 *
 * @param logprobs For every token but the first; null if not requested.
 */
export async function decodePrompt(
  { text, tokenIds }: PromptTokens,
  logprobs: readonly SampledLogprobs[] | null,
  vocabulary: Vocabulary,
): Promise<DecodedPrompt> {
  const tokens: DecodedPrompt["tokens"][number][] = [];
  const decoded: (DecodedTokenLogprobs | null)[] = [];
  const addedTokens = addedTokensOf(text, tokenIds, vocabulary);
  const entriesPerToken = 1 + (logprobs?.[0] === undefined ? 0 : 1 + logprobs[0].top.length);
  for (let start = 0; start < tokenIds.length; start += TOKENS_PER_PIECE) {
    await turns.take(TOKENS_PER_PIECE * entriesPerToken);
    for (const [index, tokenId] of tokenIds.slice(start, start + TOKENS_PER_PIECE).entries()) {
      const isLeftOut = addedTokens.has(start + index);
      tokens.push({ tokenId, ...decodedTextOf(tokenId, vocabulary), ...(isLeftOut && { isLeftOut }) });
      const own = logprobs?.[start + index - 1];
      decoded.push(own === undefined ? null : decodeLogprobs(own, vocabulary));
    }
  }
  return { text, tokens, logprobs: logprobs === null ? null : decoded };
}

/** Positions of the special tokens at either end that the text does not have: the tokenizer added them. */
function addedTokensOf(text: string, tokenIds: readonly number[], vocabulary: Vocabulary): ReadonlySet<number> {
  const added = new Set<number>();
  let rest = text;
  let first = 0;
  for (; first < tokenIds.length && vocabulary.isSpecial(tokenIds[first]!); first++) {
    const { token } = decodedTextOf(tokenIds[first]!, vocabulary);
    if (rest.startsWith(token)) rest = rest.slice(token.length);
    else added.add(first);
  }
  for (let last = tokenIds.length - 1; last > first && vocabulary.isSpecial(tokenIds[last]!); last--) {
    const { token } = decodedTextOf(tokenIds[last]!, vocabulary);
    if (rest.endsWith(token)) rest = rest.slice(0, rest.length - token.length);
    else added.add(last);
  }
  return added;
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
