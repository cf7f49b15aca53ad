/** Converts a request's constraints on its output into the form that the engine thread applies. */
import { setImmediate as nextTurn } from "node:timers/promises";

import { EngineError } from "../contract/errors.ts";
import type { SamplingParams } from "../contract/sampling-params.ts";
import type { EngineRequest } from "../core/engine-request.ts";
import { GrammarCompiler } from "../structured-output/grammar-compiler.ts";
import { createGrammarVocabulary } from "../structured-output/grammar-vocabulary.ts";
import type { Tokenizer } from "../text/tokenizer.ts";

export interface OutputConstraintsOptions {
  readonly tokenizer: Tokenizer;
  /** Length of a row of logits. */
  readonly vocabSize: number;
  readonly eosTokenIds: readonly number[];
}

/** Words that are tokenised before other work gets a turn of the event loop. */
const WORDS_PER_TURN = 64;
/** Maximum number of token ids in a message. */
const MAX_TOLD = 8;

/** Owns the grammar compiler. */
export class OutputConstraints implements AsyncDisposable {
  readonly #options: OutputConstraintsOptions;
  readonly #grammars: GrammarCompiler;

  constructor(options: OutputConstraintsOptions) {
    const { tokenizer, vocabSize, eosTokenIds } = options;
    this.#options = options;
    this.#grammars = new GrammarCompiler({
      loadVocabulary: () => createGrammarVocabulary(tokenizer, vocabSize, eosTokenIds),
    });
  }

  /** Throws EngineError `invalid_argument` for a token id outside the vocabulary. */
  check({ logitBias, allowedTokenIds }: SamplingParams): void {
    const { vocabSize } = this.#options;
    const isStranger = (tokenId: number): boolean => !(tokenId >= 0 && tokenId < vocabSize);
    const biased = Object.keys(logitBias ?? {})
      .map(Number)
      .filter(isStranger);
    if (biased.length > 0) {
      const told = `token_id(s) [${tellSome(biased)}] in logitBias contain out-of-vocab token ids`;
      refuse("logitBias", `${told}. Vocabulary size: ${vocabSize}`);
    }
    const allowed = (allowedTokenIds ?? []).filter(isStranger);
    if (allowed.length > 0) {
      const told = `allowedTokenIds contains out-of-vocab token id(s) [${tellSome(allowed)}]`;
      refuse("allowedTokenIds", `${told}. Vocabulary size: ${vocabSize}`);
    }
  }

  /**
   * Compiles the grammar, in the tenant's share, and tokenises the words without blocking the event loop. Throws
   * EngineError `invalid_argument` or the grammar compiler's errors; rejects with the signal's reason when aborted.
   */
  async resolve(
    { badWords, structuredOutput }: SamplingParams,
    signal: AbortSignal,
    tenant = "",
  ): Promise<Pick<EngineRequest, "badWordsTokenIds" | "grammar">> {
    const badWordsTokenIds = await this.#tokenizeBadWords(badWords, signal);
    const grammar =
      structuredOutput === null ? null : await this.#grammars.compile(structuredOutput, { signal, tenant });
    return { badWordsTokenIds, grammar };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#grammars[Symbol.asyncDispose]();
  }

  /**
   * Tokenises each word as at the start of a text. If the word after a space starts with another token and has as many
   * tokens, that form is added, as in vLLM's `SamplingParams.update_from_tokenizer`.
   */
  async #tokenizeBadWords(badWords: readonly string[], signal: AbortSignal): Promise<readonly (readonly number[])[]> {
    const { tokenizer, vocabSize } = this.#options;
    const encode = async (text: string): Promise<number[]> =>
      (await tokenizer.encode(text, { addSpecialTokens: false, signal })) ?? [];
    const sequences: number[][] = [];
    for (const [index, badWord] of badWords.entries()) {
      if (index % WORDS_PER_TURN === WORDS_PER_TURN - 1) await nextTurn(undefined, { signal });
      const word = badWord.trimStart();
      const plain = await encode(word);
      const spaced = await encode(` ${word}`);
      if (plain.length > 0) sequences.push(plain);
      if (spaced[0] !== plain[0] && spaced.length === plain.length) sequences.push(spaced);
    }
    const strangers = sequences.flat().filter((tokenId) => tokenId >= vocabSize);
    if (strangers.length > 0) {
      const told = `badWords contains words with token ids [${tellSome(strangers)}] that the model does not have`;
      refuse("badWords", `${told}. Vocabulary size: ${vocabSize}`);
    }
    return sequences;
  }
}

function tellSome(tokenIds: readonly number[]): string {
  const told = tokenIds.slice(0, MAX_TOLD).join(", ");
  return tokenIds.length > MAX_TOLD ? `${told}, and ${tokenIds.length - MAX_TOLD} more` : told;
}

function refuse(field: keyof SamplingParams, problem: string): never {
  throw new EngineError("invalid_argument", `${problem}.`, { parameter: `samplingParams.${field}` });
}
