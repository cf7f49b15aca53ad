/** The token budget of a step, and what tokens of prompts cost of it. */
import type { PrefillChunk } from "./scheduler-output.ts";
import type { Sequence } from "./sequence.ts";

/**
 * The logprobs of a token of a prompt take a pass or more over the vocabulary, 1.5 ms with 150,000 tokens, while all
 * other sequences wait for the step.
 */
const COST_OF_LOGPROBS = 8;

/** In tokens of a step. */
export function costOfPromptToken({ needsPromptLogprobs }: Sequence): number {
  return needsPromptLogprobs ? COST_OF_LOGPROBS : 1;
}

/** Mutable; for one step: how many tokens of prompts still fit into it. */
export class TokenBudget {
  readonly #enoughPromptTokens: number;
  #numLeft: number;
  #numPromptTokens = 0;

  /** @param enoughPromptTokens A step that has this many tokens of prompts takes no further prompt. */
  constructor(maxNumTokens: number, enoughPromptTokens: number) {
    this.#numLeft = maxNumTokens;
    this.#enoughPromptTokens = enoughPromptTokens;
  }

  /** Tokens that the step may still have, of whichever kind. */
  get tokensLeft(): number {
    return this.#numLeft;
  }

  /** The most tokens that the next chunk of a prompt may have. */
  get promptTokensLeft(): number {
    return this.#numPromptTokens >= this.#enoughPromptTokens ? 0 : this.#numLeft;
  }

  takeDecodes(numTokens: number): void {
    this.#numLeft -= numTokens;
  }

  takePrompt({ sequence, numTokens }: PrefillChunk): void {
    const cost = numTokens * costOfPromptToken(sequence);
    this.#numLeft = Math.max(this.#numLeft - cost, 0);
    this.#numPromptTokens += cost;
  }
}
