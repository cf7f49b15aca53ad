/** The change of one item to its prompt, fully resolved: plain data that caches store with its tensors. */

/** Where an update takes effect. Index targets have no length. */
export type PromptTarget =
  /** Token ids, matched exactly. Empty matches nothing. */
  | { readonly kind: "tokens"; readonly tokenIds: readonly number[] }
  /** Literal text. In a prompt of tokens, the tokens of its own encoding. Empty matches at any place. */
  | { readonly kind: "text"; readonly text: string }
  /** Before the first token, whatever it is. */
  | { readonly kind: "start" }
  /** After `sequence`, in prompts that start with it. */
  | { readonly kind: "prefix"; readonly sequence: PromptSequence }
  /** After the last token. */
  | { readonly kind: "end" };

export type PromptSequence = Extract<PromptTarget, { readonly kind: "tokens" | "text" }>;

/** The content inserted for one item. */
export interface PromptContent {
  readonly full: readonly number[];
  /** Which tokens of `full` receive an embedding, as many as there are tokens; null means all. */
  readonly isEmbed: readonly boolean[] | null;
}

export interface ResolvedPromptUpdate {
  /** A replacement takes the target's place; an insertion comes right after it. */
  readonly mode: "replacement" | "insertion";
  readonly target: PromptTarget;
  readonly content: PromptContent;
}

/** An update as caches store it, for every prompt that shows the item. */
export interface ItemPromptUpdate extends Omit<ResolvedPromptUpdate, "target"> {
  /** Null if it depends on the item's place among those of its prompt. */
  readonly target: PromptTarget | null;
}

/** Each item's alternatives, preferred one first. Items of a modality are in order, and so are modalities. */
export type ItemUpdates = readonly (readonly ResolvedPromptUpdate[])[];
