/** The text operations on a prompt's tokens that prompt updates need. */

/** A tokenizer that adds no special tokens around a text. */
export interface PromptText {
  /** Special tokens included. */
  decode(tokenIds: readonly number[]): string;
  encode(text: string): Promise<readonly number[]>;
}
