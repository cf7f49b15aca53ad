/** A row that joins the batch, with the additional data for built-in processors. */
import type { ThinkingBudget } from "../../core/engine-request.ts";
import type { CompiledGrammar } from "../../structured-output/compiled-grammar.ts";
import type { AddedRequest, BatchUpdate } from "../contract/logits-processor.ts";

export interface AddedSequence extends AddedRequest {
  /** No word is empty. */
  readonly badWordsTokenIds: readonly (readonly number[])[];
  readonly beginSuppressedTokenIds?: readonly number[] | undefined;
  readonly grammar: CompiledGrammar | null;
  readonly thinkingBudget?: ThinkingBudget | undefined;
}

export interface SequenceBatchUpdate extends BatchUpdate {
  readonly added: readonly AddedSequence[];
}
