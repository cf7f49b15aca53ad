/** What one item does to its prompt, with nothing left to work out: plain data that caches keep beside its tensors. */

/** Where an update takes effect. Index targets have no length. */
export type PromptTarget =
  /** Token ids, matched exactly. Empty matches nothing. */
  | { readonly kind: "tokens"; readonly tokenIds: readonly number[] }
  /** Literal text; on a prompt of tokens, the tokens it is encoded to by itself. Empty matches at any place. */
  | { readonly kind: "text"; readonly text: string }
  /** Before the first token, whatever it is. */
  | { readonly kind: "start" }
  /** After `sequence`, in prompts that begin with it. */
  | { readonly kind: "prefix"; readonly sequence: PromptSequence }
  /** After the last token. */
  | { readonly kind: "end" };

export type PromptSequence = Extract<PromptTarget, { readonly kind: "tokens" | "text" }>;

/** What is put into the prompt for one item. */
export interface PromptContent {
  readonly full: readonly number[];
  /** Which tokens of `full` receive an embedding, as many as there are tokens; null is all. */
  readonly isEmbed: readonly boolean[] | null;
}

export interface ResolvedPromptUpdate {
  /** A replacement takes the target's place; an insertion stands right after it. */
  readonly mode: "replacement" | "insertion";
  readonly target: PromptTarget;
  readonly content: PromptContent;
}
