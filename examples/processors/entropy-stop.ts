/**
 * Ends a text where the model no longer knows how to go on: where the entropy of the next token exceeds a limit. For
 * reading documents, where a guess is worse than a cut.
 *
 *     LOGITS_PROCESSOR_PATH=examples LOGITS_PROCESSORS=processors.entropy-stop:EntropyStop npm start
 *     curl ... -d '{"prompt": "a", "vllm_xargs": {"max_entropy": 1.5, "entropy_min_tokens": 4}}'
 *
 * The entropy is in nats: 0 for a sure token, ln 2 = 0.69 for a toss-up between two.
 */
import { RequestLogitsProcessorAdapter } from "fovea";
import type { DeviceName, EngineConfig, RequestLogitsProcessor, SamplingParams } from "fovea";

import { endTokensOf } from "./end-tokens.ts";
import { numberArgument } from "./numbers.ts";

export class EntropyStop extends RequestLogitsProcessorAdapter {
  readonly #endTokenIds: readonly number[];

  constructor(config: EngineConfig, device: DeviceName, options: Readonly<Record<string, unknown>>) {
    super(config, device, options);
    this.#endTokenIds = endTokensOf(config, options);
  }

  static override validateParams(params: SamplingParams): void {
    entropyArguments(params);
  }

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor(params: SamplingParams): RequestLogitsProcessor | null {
    const { maxEntropy, minTokens } = entropyArguments(params);
    if (maxEntropy === undefined) return null;
    return (outputTokenIds: readonly number[], row: Float32Array) => {
      if (outputTokenIds.length < minTokens || entropyOf(row) <= maxEntropy) return row;
      // An end token may itself be impossible, so it does not keep its logit.
      row.fill(Number.NEGATIVE_INFINITY);
      for (const tokenId of this.#endTokenIds) row[tokenId] = 0;
      return row;
    };
  }
}

function entropyArguments(params: SamplingParams): { maxEntropy: number | undefined; minTokens: number } {
  return {
    maxEntropy: numberArgument(params, "max_entropy", 0, 20),
    minTokens: numberArgument(params, "entropy_min_tokens", 0, 65_536) ?? 1,
  };
}

/** In nats, at temperature 1. */
function entropyOf(row: Float32Array): number {
  const highest = row.reduce((most, logit) => Math.max(most, logit), Number.NEGATIVE_INFINITY);
  let mass = 0;
  let weighted = 0;
  for (const logit of row) {
    const weight = Math.exp(logit - highest);
    if (weight === 0) continue;
    mass += weight;
    weighted += weight * (logit - highest);
  }
  return Math.log(mass) - weighted / mass;
}
