/** What the built-in processors are told of a row that joins the batch, beside what everyone is told. */
import type { CompiledGrammar } from "../../structured-output/compiled-grammar.ts";
import type { AddedRequest, BatchUpdate } from "../contract/logits-processor.ts";

export interface AddedSequence extends AddedRequest {
  /** None of them is empty. */
  readonly badWordsTokenIds: readonly (readonly number[])[];
  readonly grammar: CompiledGrammar | null;
}

export interface SequenceBatchUpdate extends BatchUpdate {
  readonly added: readonly AddedSequence[];
}
