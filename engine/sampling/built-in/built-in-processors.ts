/** The processors of every engine. */
import type { EngineConfig } from "../../contract/config.ts";
import type { BuiltInProcessors, GrammarProcessor } from "../processor-chain.ts";
import { AllowedTokensLogitsProcessor } from "./allowed-tokens.ts";
import { BadWordsLogitsProcessor } from "./bad-words.ts";
import { LogitBiasLogitsProcessor } from "./logit-bias.ts";
import { MinPLogitsProcessor } from "./min-p.ts";
import { MinTokensLogitsProcessor } from "./min-tokens.ts";
import { PenaltiesLogitsProcessor } from "./penalties.ts";
import { ThinkingBudgetLogitsProcessor } from "./thinking-budget.ts";

/** @param eosTokenIds The model's end tokens, for `MinTokensLogitsProcessor`. */
export function createBuiltInProcessors(
  config: EngineConfig,
  eosTokenIds: readonly number[],
  grammars: GrammarProcessor,
): BuiltInProcessors {
  return {
    grammars,
    argmaxChanging: [
      new AllowedTokensLogitsProcessor(config),
      new BadWordsLogitsProcessor(config),
      new MinTokensLogitsProcessor(config, eosTokenIds),
      new LogitBiasLogitsProcessor(config),
      // Last, since it leaves a single token.
      new ThinkingBudgetLogitsProcessor(config),
    ],
    penalties: [new PenaltiesLogitsProcessor(config)],
    argmaxInvariant: [new MinPLogitsProcessor(config)],
  };
}
