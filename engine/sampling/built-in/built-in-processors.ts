/** The processors of every engine, each with the rows that it is for. */
import type { EngineConfig } from "../../contract/config.ts";
import { OptionalProcessor } from "../processor-chain.ts";
import type { BuiltInProcessors, GrammarProcessor } from "../processor-chain.ts";
import { AllowedTokensLogitsProcessor } from "./allowed-tokens.ts";
import { BadWordsLogitsProcessor } from "./bad-words.ts";
import { BeginSuppressedTokensLogitsProcessor } from "./begin-suppressed-tokens.ts";
import { LogitBiasLogitsProcessor } from "./logit-bias.ts";
import { MinPLogitsProcessor } from "./min-p.ts";
import { MinTokensLogitsProcessor } from "./min-tokens.ts";
import { NoRepeatNgramLogitsProcessor } from "./no-repeat-ngram.ts";
import { PenaltiesLogitsProcessor } from "./penalties.ts";
import { ThinkingBudgetLogitsProcessor } from "./thinking-budget.ts";

/** @param eosTokenIds The model's end tokens, for `MinTokensLogitsProcessor`. */
export function createBuiltInProcessors(
  config: EngineConfig,
  eosTokenIds: readonly number[],
  grammars: GrammarProcessor,
): BuiltInProcessors {
  const allowedTokens = new AllowedTokensLogitsProcessor(config);
  const badWords = new BadWordsLogitsProcessor(config);
  const beginSuppressed = new BeginSuppressedTokensLogitsProcessor(config);
  const minTokens = new MinTokensLogitsProcessor(config, eosTokenIds);
  const logitBias = new LogitBiasLogitsProcessor(config);
  const noRepeatNgram = new NoRepeatNgramLogitsProcessor(config);
  const thinkingBudget = new ThinkingBudgetLogitsProcessor(config, grammars);
  const penalties = new PenaltiesLogitsProcessor(config);
  const minP = new MinPLogitsProcessor(config);
  return {
    grammars: new OptionalProcessor(grammars, ({ grammar }) => grammar !== null),
    argmaxChanging: [
      new OptionalProcessor(allowedTokens, ({ params }) => params.allowedTokenIds !== null),
      new OptionalProcessor(badWords, ({ badWordsTokenIds }) => badWordsTokenIds.length > 0),
      new OptionalProcessor(beginSuppressed, ({ beginSuppressedTokenIds }) => beginSuppressedTokenIds !== undefined),
      new OptionalProcessor(minTokens, ({ params }) => params.minTokens > 0),
      new OptionalProcessor(logitBias, ({ params }) => params.logitBias !== null),
      new OptionalProcessor(noRepeatNgram, ({ params }) => Object.keys(params.extraArgs).length > 0),
    ],
    afterCustom: [
      new OptionalProcessor(
        penalties,
        ({ params }) => params.repetitionPenalty !== 1 || params.frequencyPenalty !== 0 || params.presencePenalty !== 0,
      ),
      // Last, since it leaves a single token.
      new OptionalProcessor(thinkingBudget, ({ thinkingBudget }) => thinkingBudget !== undefined),
    ],
    argmaxInvariant: [new OptionalProcessor(minP, ({ params }) => params.minP > 0)],
  };
}
