/** Converts a request's constraints on its output into the form that the engine thread applies. */
import { setImmediate as nextTurn } from "node:timers/promises";

import { EngineError } from "../contract/errors.ts";
import type { ReasoningStart } from "../contract/request-output.ts";
import type { ReasoningParams, SamplingParams } from "../contract/sampling-params.ts";
import type { EngineRequest, ThinkingBudget } from "../core/engine-request.ts";
import { GrammarCompiler } from "../structured-output/grammar-compiler.ts";
import { createGrammarVocabulary } from "../structured-output/grammar-vocabulary.ts";
import { withTextTokens } from "../text/added-tokens.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { withThinking } from "./reasoning.ts";

export interface OutputConstraintsOptions {
  readonly tokenizer: Tokenizer;
  /** Length of a row of logits. */
  readonly vocabSize: number;
  readonly eosTokenIds: readonly number[];
  /** Tokens that no output may have, whatever the request says. Default: none. */
  readonly suppressedTokenIds?: readonly number[];
  /** Like them, of several tokens each. Default: none. */
  readonly suppressedSequences?: readonly (readonly number[])[];
  /** Tokens that no output may start with. Default: none. */
  readonly beginSuppressedTokenIds?: readonly number[];
}

export interface ResolveOptions {
  /** Default "". */
  readonly tenant?: string;
  /** Where the output starts; null, the default, for a model that does not mark its thinking. */
  readonly reasoningStart?: ReasoningStart | null;
}

type ConstraintsOfRequest = "badWordsTokenIds" | "beginSuppressedTokenIds" | "grammar" | "thinkingBudget";

export interface ResolvedConstraints extends Pick<EngineRequest, ConstraintsOfRequest> {
  /** Special tokens that are text for this request. */
  readonly textTokenIds: readonly number[];
}

/** Words that are tokenised before other work gets a turn of the event loop. */
const WORDS_PER_TURN = 64;
/** Maximum number of token ids in a message. */
const MAX_TOLD = 8;

/** Owns the grammar compiler. */
export class OutputConstraints implements AsyncDisposable {
  readonly #options: OutputConstraintsOptions;
  readonly #grammars: GrammarCompiler;
  /** Bad words of every request. */
  readonly #suppressed: readonly (readonly number[])[];

  constructor(options: OutputConstraintsOptions) {
    const { tokenizer, vocabSize, eosTokenIds, suppressedTokenIds = [], suppressedSequences = [] } = options;
    this.#options = options;
    this.#suppressed = [...suppressedTokenIds.map((tokenId) => [tokenId]), ...suppressedSequences];
    this.#grammars = new GrammarCompiler({
      loadVocabulary: (textTokenIds) =>
        createGrammarVocabulary(withTextTokens(tokenizer, textTokenIds), vocabSize, eosTokenIds),
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
    params: SamplingParams,
    signal: AbortSignal,
    { tenant = "", reasoningStart = null }: ResolveOptions = {},
  ): Promise<ResolvedConstraints> {
    const { badWords, structuredOutput, reasoning } = params;
    const badWordsTokenIds = [...this.#suppressed, ...(await this.#tokenizeBadWords(badWords, signal))];
    const textTokenIds = await this.#textTokenIds(params);
    const form =
      structuredOutput === null || reasoning === null || reasoningStart === null
        ? structuredOutput
        : withThinking(structuredOutput, reasoning, reasoningStart);
    const grammar = form === null ? null : await this.#grammars.compile(form, { signal, tenant, textTokenIds });
    const thinkingBudget = await this.#thinkingBudget(reasoning, reasoningStart);
    const { beginSuppressedTokenIds = [] } = this.#options;
    return {
      badWordsTokenIds,
      ...(beginSuppressedTokenIds.length > 0 && { beginSuppressedTokenIds }),
      textTokenIds,
      grammar,
      ...(thinkingBudget && { thinkingBudget }),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#grammars[Symbol.asyncDispose]();
  }

  /** In ascending order. */
  async #textTokenIds({ keptSpecialTokens, reasoning }: SamplingParams): Promise<number[]> {
    const { tokenizer, eosTokenIds } = this.#options;
    const markers = reasoning === null ? [] : [reasoning.start, reasoning.end];
    const kept = new Set([...keptSpecialTokens, ...markers].map((text) => tokenizer.tokenId(text)));
    for (const marker of markers.filter((text) => tokenizer.tokenId(text) === null)) {
      // A special token and text, such as `<|channel>thought`.
      for (const tokenId of (await tokenizer.encode(marker, { addSpecialTokens: false })) ?? []) kept.add(tokenId);
    }
    return [...kept]
      .filter((tokenId) => tokenId !== null)
      .filter((tokenId) => tokenizer.isSpecial(tokenId) && !eosTokenIds.includes(tokenId))
      .sort((left, right) => left - right);
  }

  /** Null without a budget, and where the prompt has ended the thinking. */
  async #thinkingBudget(
    reasoning: ReasoningParams | null,
    start: ReasoningStart | null,
  ): Promise<ThinkingBudget | null> {
    if (reasoning === null || reasoning.tokenBudget === null || start === null || start === "after") return null;
    const { tokenizer } = this.#options;
    const encode = async (text: string): Promise<readonly number[]> =>
      (await tokenizer.encode(text, { addSpecialTokens: false })) ?? [];
    return {
      numTokens: reasoning.tokenBudget,
      startTokenIds: await encode(reasoning.start),
      endTokenIds: await encode(reasoning.end),
      startsInside: start !== "before",
    };
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
