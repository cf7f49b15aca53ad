/** The text side of a prompt's tokens, as far as prompt updates need it. */

/** A tokenizer without the special tokens it would add around a text. */
export interface PromptText {
  /** Special tokens included. */
  decode(tokenIds: readonly number[]): string;
  encode(text: string): Promise<readonly number[]>;
}
