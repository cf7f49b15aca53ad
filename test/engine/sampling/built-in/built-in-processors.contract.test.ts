import type { SamplingParams } from "../../../../engine/contract/sampling-params.ts";
import { AllowedTokensLogitsProcessor } from "../../../../engine/sampling/built-in/allowed-tokens.ts";
import { BadWordsLogitsProcessor } from "../../../../engine/sampling/built-in/bad-words.ts";
import { BeginSuppressedTokensLogitsProcessor } from "../../../../engine/sampling/built-in/begin-suppressed-tokens.ts";
import { LogitBiasLogitsProcessor } from "../../../../engine/sampling/built-in/logit-bias.ts";
import { MinPLogitsProcessor } from "../../../../engine/sampling/built-in/min-p.ts";
import { MinTokensLogitsProcessor } from "../../../../engine/sampling/built-in/min-tokens.ts";
import { NoRepeatNgramLogitsProcessor } from "../../../../engine/sampling/built-in/no-repeat-ngram.ts";
import { PenaltiesLogitsProcessor } from "../../../../engine/sampling/built-in/penalties.ts";
import { ThinkingBudgetLogitsProcessor } from "../../../../engine/sampling/built-in/thinking-budget.ts";
import { RequestLogitsProcessorAdapter } from "../../../../engine/sampling/contract/request-logits-processor-adapter.ts";
import type { RequestLogitsProcessor } from "../../../../engine/sampling/contract/request-logits-processor-adapter.ts";
import { testLogitsProcessor } from "../../../contracts/logits-processor.ts";
import { engineConfig } from "../create-sampler.ts";

testLogitsProcessor("allowed tokens", {
  create: () => new AllowedTokensLogitsProcessor(engineConfig),
  using: [{ allowedTokenIds: [3, 4, 5] }, { allowedTokenIds: [0, 47, 47] }],
});

testLogitsProcessor("bad words", {
  create: () => new BadWordsLogitsProcessor(engineConfig),
  using: [{ badWords: ["any"] }],
  badWordsTokenIds: [[7], [5, 8], [0, 3, 12], [3, 3]],
});

testLogitsProcessor("tokens suppressed at the start", {
  create: () => new BeginSuppressedTokensLogitsProcessor(engineConfig),
  using: [{}],
  beginSuppressedTokenIds: [5, 7, 47],
});

testLogitsProcessor("min tokens", {
  create: () => new MinTokensLogitsProcessor(engineConfig, [2]),
  using: [{ minTokens: 3 }, { minTokens: 6, stopTokenIds: [9, 10] }, { minTokens: 1, ignoreEos: true }],
});

testLogitsProcessor("logit bias", {
  create: () => new LogitBiasLogitsProcessor(engineConfig),
  using: [{ logitBias: { 3: 1.5, 40: -1000 } }, { logitBias: { 0: 7 } }],
  notUsing: [{}, { logitBias: {} }],
});

testLogitsProcessor("no repeated n-grams", {
  create: () => new NoRepeatNgramLogitsProcessor(engineConfig),
  using: [
    { extraArgs: { ngram_size: 1, window_size: 4 } },
    { extraArgs: { ngram_size: 2, whitelist_token_ids: [3] } },
    { extraArgs: { no_repeat_ngram_size: 1 } },
  ],
  notUsing: [{}, { extraArgs: { window_size: 4 } }, { extraArgs: { ngram_size: 0 } }],
});

testLogitsProcessor("penalties", {
  create: () => new PenaltiesLogitsProcessor(engineConfig),
  using: [
    { repetitionPenalty: 1.3 },
    { presencePenalty: 0.7 },
    { frequencyPenalty: -0.4 },
    { repetitionPenalty: 0.8, presencePenalty: -1, frequencyPenalty: 2 },
  ],
});

testLogitsProcessor("min-p", {
  create: () => new MinPLogitsProcessor(engineConfig),
  using: [{ minP: 0.1 }, { minP: 1 }],
  notUsing: [{}, { temperature: 0, minP: 0.5 }],
});

testLogitsProcessor("thinking budget", {
  create: () => new ThinkingBudgetLogitsProcessor(engineConfig, { allows: () => true }),
  using: [{}, { temperature: 0 }],
  thinkingBudget: { numTokens: 3, startTokenIds: [40, 41], endTokenIds: [45, 46, 47], startsInside: true },
});

/** Favours tokens by their count in the output or the prompt, with a table per request that each call extends. */
class Favourites extends RequestLogitsProcessorAdapter {
  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor({ extraArgs }: SamplingParams): RequestLogitsProcessor | null {
    const counts = new Map<number, number>();
    const favour = (tokenIds: readonly number[], row: Float32Array): Float32Array => {
      counts.clear();
      for (const tokenId of tokenIds) counts.set(tokenId, (counts.get(tokenId) ?? 0) + 1);
      for (const [tokenId, count] of counts) row[tokenId]! += count;
      return row;
    };
    if (extraArgs.favour === "output") return favour;
    if (extraArgs.favour !== "both") return null;
    return (promptTokenIds, outputTokenIds, row) => favour([...promptTokenIds, ...outputTokenIds], row.slice());
  }
}

testLogitsProcessor("an adapter for functions of one request", {
  create: () => new Favourites(engineConfig, "cpu", {}),
  using: [{ extraArgs: { favour: "output" } }, { extraArgs: { favour: "both" } }],
});
