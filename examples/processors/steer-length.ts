/**
 * Steers the length of a text: it cannot end before a minimum, gets more willing to end from there on, and must end at
 * a maximum. With `max_tokens` alone a text is cut off; here the model can round it off.
 *
 *     LOGITS_PROCESSOR_PATH=examples LOGITS_PROCESSORS=processors.steer-length:SteerLength npm start
 *     curl ... -d '{"prompt": "a", "vllm_xargs": {"length_min": 8, "length_max": 16}}'
 */
import { RequestLogitsProcessorAdapter } from "fovea";
import type { DeviceName, EngineConfig, RequestLogitsProcessor, SamplingParams } from "fovea";

import { endTokensOf, keepOnly } from "./end-tokens.ts";
import { numberArgument } from "./numbers.ts";

const MAX_TOKENS = 65_536;
/** Added to the logit of an end token just before the maximum: more than most tokens lead by. */
const DEFAULT_STRENGTH = 10;

export class SteerLength extends RequestLogitsProcessorAdapter {
  readonly #endTokenIds: readonly number[];

  constructor(config: EngineConfig, device: DeviceName, options: Readonly<Record<string, unknown>>) {
    super(config, device, options);
    this.#endTokenIds = endTokensOf(config, options);
  }

  static override validateParams(params: SamplingParams): void {
    lengthArguments(params);
  }

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor(params: SamplingParams): RequestLogitsProcessor | null {
    const { minTokens, maxTokens, strength } = lengthArguments(params);
    if (minTokens === 0 && maxTokens === MAX_TOKENS) return null;
    return ({ length }: readonly number[], row: Float32Array) => {
      if (length >= maxTokens) return keepOnly(this.#endTokenIds, row);
      const isShort = length < minTokens;
      const bias = isShort ? Number.NEGATIVE_INFINITY : (strength * (length - minTokens + 1)) / (maxTokens - minTokens);
      for (const tokenId of this.#endTokenIds) row[tokenId]! += bias;
      return row;
    };
  }
}

function lengthArguments(params: SamplingParams) {
  const minTokens = numberArgument(params, "length_min", 0, MAX_TOKENS) ?? 0;
  const maxTokens = numberArgument(params, "length_max", 1, MAX_TOKENS) ?? MAX_TOKENS;
  if (minTokens > maxTokens) throw new Error(`length_min must be at most length_max=${maxTokens}, got ${minTokens}.`);
  return { minTokens, maxTokens, strength: numberArgument(params, "length_strength", 0, 100) ?? DEFAULT_STRENGTH };
}
