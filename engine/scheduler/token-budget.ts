/** How many tokens of prompts still fit into a step. */

/** Mutable; for one step. */
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

  takePrompt(numTokens: number): void {
    this.#numLeft -= numTokens;
    this.#numPromptTokens += numTokens;
  }
}
