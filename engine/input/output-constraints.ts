/** What a request's parameters demand of its output, in the form the engine thread applies it in. */
import { setImmediate as nextTurn } from "node:timers/promises";

import { EngineError } from "../contract/errors.ts";
import { GrammarCompiler } from "../structured-output/grammar-compiler.ts";
import { createGrammarVocabulary } from "../structured-output/grammar-vocabulary.ts";
import type { EngineRequest } from "../core/engine-request.ts";
import type { SamplingParams } from "../contract/sampling-params.ts";
import type { Tokenizer } from "../text/tokenizer.ts";

export interface OutputConstraintsOptions {
  readonly tokenizer: Tokenizer;
  /** Length of a row of logits. */
  readonly vocabSize: number;
  readonly eosTokenIds: readonly number[];
}

/** Words tokenised before the event loop gets its turn. */
const WORDS_PER_TURN = 64;
/** As many as fit into a message. */
const MAX_TOLD = 8;

/** Owns the compiler of grammars. */
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

  /** Throws EngineError `invalid_argument` for a token id that the vocabulary does not have. */
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
   * Compiles the grammar and tokenises the words, with the event loop going on. Throws EngineError `invalid_argument`,
   * or what the compiler of grammars throws; rejects with the signal's reason when aborted.
   */
  async resolve(
    { badWords, structuredOutput }: SamplingParams,
    signal: AbortSignal,
  ): Promise<Pick<EngineRequest, "badWordsTokenIds" | "grammar">> {
    const badWordsTokenIds = await this.#tokenizeBadWords(badWords, signal);
    const grammar = structuredOutput === null ? null : await this.#grammars.compile(structuredOutput, { signal });
    return { badWordsTokenIds, grammar };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#grammars[Symbol.asyncDispose]();
  }

  /**
   * Each word as it stands at the start of a text and, where that is another first token and as many of them, as it
   * stands after a space; rules as in vLLM's `SamplingParams.update_from_tokenizer`.
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
