/** An answer in progress: its text, its tokens, its figures. */
import { cutIntoSpans } from "./token-spans.js";

/** @import { TokenLogprobs, TokenSpan } from "./token-spans.js" */

/**
 * @typedef {object} Usage
 * @property {number} prompt_tokens
 * @property {number} completion_tokens
 * @property {{ cached_tokens: number, multimodal_tokens: { image: number, video?: number } }} [prompt_tokens_details]
 */

/**
 * @typedef {object} ChatChunk
 * @property {readonly {
 *   delta: { content?: string, reasoning_content?: string },
 *   logprobs: { content: readonly TokenLogprobs[] } | null,
 *   finish_reason: string | null,
 * }[]} choices
 * @property {Usage} [usage]
 */

/**
 * @typedef {object} Figures
 * @property {number} outputTokens
 * @property {number} promptTokens
 * @property {number} imageTokens  In the prompt.
 * @property {number} videoTokens  In the prompt.
 * @property {number} cachedTokens  In the prompt.
 * @property {number | null} timeToFirstTokenMs
 * @property {number | null} timeToLastTokenMs
 * @property {number | null} tokensPerSecond  After the first token; null where too few came to tell.
 */

/** Fewer tokens may have arrived in one packet, or while the page was busy, so they give no rate. */
const LEAST_TOKENS_OF_RATE = 4;
const LEAST_MILLISECONDS_OF_RATE = 10;

/** Mutable: grows by chunks. */
export class Answer {
  text = "";
  /** Null until the server has reported why it ended. */
  finishReason = /** @type {string | null} */ (null);
  /** From the latest chunk. */
  #usage = /** @type {Usage | null} */ (null);
  #askedAt;
  /** @type {{ at: number, numTokens: number } | null} */
  #first = null;
  /** @type {{ at: number, numTokens: number } | null} */
  #last = null;

  /** @param {number} now  Milliseconds of any clock that only goes forward, here and below. */
  constructor(now) {
    this.#askedAt = now;
  }

  /**
   * Returns what the chunk adds to the text, cut into spans.
   *
   * @param {ChatChunk} chunk
   * @param {number} now
   * @returns {TokenSpan[]}
   */
  add({ choices, usage }, now) {
    if (usage) this.#usage = usage;
    const choice = choices[0];
    if (choice === undefined) return [];
    const { delta, logprobs, finish_reason: finishReason } = choice;
    const numTokens = this.#usage?.completion_tokens ?? 0;
    if (numTokens > (this.#last?.numTokens ?? 0)) {
      this.#last = { at: now, numTokens };
      this.#first ??= this.#last;
    }
    this.finishReason = finishReason ?? this.finishReason;
    const content = delta.content ?? "";
    this.text += content;
    return cutIntoSpans(content, logprobs?.content ?? []);
  }

  /**
   * Null before anything has come.
   *
   * @returns {Figures | null}
   */
  get figures() {
    const usage = this.#usage;
    if (usage === null) return null;
    const first = this.#first;
    const last = this.#last;
    const moreTokens = first && last ? last.numTokens - first.numTokens : 0;
    const milliseconds = first && last ? last.at - first.at : 0;
    const hasRate = moreTokens >= LEAST_TOKENS_OF_RATE && milliseconds >= LEAST_MILLISECONDS_OF_RATE;
    return {
      outputTokens: usage.completion_tokens,
      promptTokens: usage.prompt_tokens,
      imageTokens: usage.prompt_tokens_details?.multimodal_tokens.image ?? 0,
      videoTokens: usage.prompt_tokens_details?.multimodal_tokens.video ?? 0,
      cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
      timeToFirstTokenMs: first && first.at - this.#askedAt,
      timeToLastTokenMs: last && last.at - this.#askedAt,
      tokensPerSecond: hasRate ? (moreTokens / milliseconds) * 1000 : null,
    };
  }
}
