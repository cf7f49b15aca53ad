/**
 * Answers with a passage of the prompt, word for word: the next token must continue a passage that starts as the output
 * does, or end the text. For extraction, where an invented word is worse than a short answer.
 *
 *     LOGITS_PROCESSOR_PATH=examples LOGITS_PROCESSORS=processors.cite-from-prompt:CiteFromPrompt npm start
 *     curl ... -d '{"prompt": "a red circle", "vllm_xargs": {"cite_min_tokens": 2}}'
 *
 * Tokens are compared, not letters: a passage starts where a token of the prompt starts.
 */
import { RequestLogitsProcessorAdapter } from "fovea";
import type { DeviceName, EngineConfig, RequestLogitsProcessor, SamplingParams } from "fovea";

import { endTokensOf, keepOnly } from "./end-tokens.ts";
import { numberArgument } from "./numbers.ts";

export class CiteFromPrompt extends RequestLogitsProcessorAdapter {
  readonly #endTokenIds: readonly number[];

  constructor(config: EngineConfig, device: DeviceName, options: Readonly<Record<string, unknown>>) {
    super(config, device, options);
    this.#endTokenIds = endTokensOf(config, options);
  }

  static override validateParams(params: SamplingParams): void {
    numberArgument(params, "cite_min_tokens", 1, 65_536);
  }

  /** Also greedy requests must cite. */
  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor(params: SamplingParams): RequestLogitsProcessor | null {
    const minTokens = numberArgument(params, "cite_min_tokens", 1, 65_536);
    if (minTokens === undefined) return null;
    let numRead = 0;
    /** Positions of the prompt whose token could come next. */
    let nextPositions: number[] | null = null;
    return (promptTokenIds: readonly number[], outputTokenIds: readonly number[], row: Float32Array) => {
      nextPositions ??= promptTokenIds.map((_, position) => position);
      for (; numRead < outputTokenIds.length; numRead++) {
        const tokenId = outputTokenIds[numRead];
        nextPositions = nextPositions.filter((position) => promptTokenIds[position] === tokenId);
        nextPositions = nextPositions.map((position) => position + 1);
      }
      const next = new Set(nextPositions.flatMap((position) => promptTokenIds[position] ?? []));
      // A passage that reaches the end of the prompt ends, even a short one.
      if (outputTokenIds.length >= minTokens || next.size === 0) this.#endTokenIds.forEach((id) => next.add(id));
      return keepOnly([...next], row);
    };
  }
}
