/** Turns the engine thread's tokens into text and logprobs, with one object per sequence. */
import { invariant } from "../contract/errors.ts";
import type {
  DecodedPrompt,
  DecodedTokenLogprobs,
  FinishReason,
  ReasoningStart,
  RequestOutput,
  SampledLogprobs,
} from "../contract/request-output.ts";
import type { SamplingParams } from "../contract/sampling-params.ts";
import { StopStrings } from "../text/stop-strings.ts";
import { IncrementalDetokenizer } from "../text/token-bytes.ts";
import type { Vocabulary } from "../text/vocabulary.ts";
import type { EngineCoreOutput } from "../thread/messages.ts";
import { decodeLogprobs } from "./decode-logprobs.ts";

export interface SequenceOutputsOptions {
  readonly requestId: string;
  /** Index of the sequence within its request. */
  readonly index: number;
  readonly samplingParams: SamplingParams;
  readonly vocabulary: Vocabulary;
  /** Null, the default, for a model that does not mark its thinking. */
  readonly reasoningStart?: ReasoningStart | null;
  readonly numPromptTokens: number;
  readonly numImageTokens: number;
  /** Default 0. */
  readonly numVideoTokens?: number;
  /** Default 0. */
  readonly numOmittedImages?: number;
}

/** Output that the consumer has not read yet. */
interface PendingOutput {
  text: string;
  readonly tokenIds: number[];
  /** As in `RequestOutput`; empty if they are not asked for. */
  readonly textEnds: number[];
  readonly logprobs: DecodedTokenLogprobs[];
}

/** Mutable. */
export class SequenceOutputs {
  readonly #options: SequenceOutputsOptions;
  readonly #detokenizer: IncrementalDetokenizer;
  readonly #stopStrings: StopStrings;
  #pending: PendingOutput | null = null;
  /** Whether the consumer has read an output. */
  #hasBegun = false;
  #numOutputTokens = 0;
  #numCachedTokens = 0;
  #embedding: Float32Array | null = null;
  #finishReason: FinishReason | null = null;
  #stopReason: string | number | null = null;

  constructor(options: SequenceOutputsOptions) {
    const { stop, includeStopStringInOutput, skipSpecialTokens } = options.samplingParams;
    this.#options = options;
    this.#detokenizer = new IncrementalDetokenizer(options.vocabulary, { skipSpecialTokens });
    this.#stopStrings = new StopStrings({ stop, includeInOutput: includeStopStringInOutput });
  }

  /** True once no more tokens are accepted. Earlier output may still be unread. */
  get isFinished(): boolean {
    return this.#finishReason !== null;
  }

  /**
   * Appends a step's tokens. Returns true if a stop string ended the text before the sequence ended. Tokens after the
   * end are dropped. Do not call it once finished.
   */
  append(output: EngineCoreOutput): boolean {
    invariant(!this.isFinished, "tokens came after the end of a sequence");
    this.#numCachedTokens = output.numCachedTokens;
    this.#embedding = output.embedding ?? null;
    const pending = (this.#pending ??= { text: "", tokenIds: [], textEnds: [], logprobs: [] });
    for (const [index, tokenId] of output.tokenIds.entries()) {
      const isLast = output.finishReason !== null && index === output.tokenIds.length - 1;
      pending.tokenIds.push(tokenId);
      if (output.logprobs !== null) pending.logprobs.push(this.#decodeLogprobs(output.logprobs[index]!));
      this.#numOutputTokens += 1;
      const matched = this.#appendText(pending, tokenId, isLast && output.finishReason === "stop");
      if (this.#options.reasoningStart) pending.textEnds.push(pending.text.length);
      if (matched !== null) {
        this.#finish("stop", matched);
        return output.finishReason === null;
      }
    }
    if (output.finishReason !== null) {
      const { text, matched } = this.#stopStrings.append(this.#detokenizer.finish(), false);
      invariant(matched === null, "unchecked text matched a stop string");
      pending.text += text + this.#stopStrings.finish();
      if (pending.textEnds.length > 0) pending.textEnds[pending.textEnds.length - 1] = pending.text.length;
      this.#finish(output.finishReason, output.stopReason);
    }
    return false;
  }

  /**
   * Returns everything since the last output, or null if there is nothing.
   *
   * @param prompt What the sequence's first output says about the prompt.
   */
  take(prompt: DecodedPrompt | null): RequestOutput | null {
    if (this.#pending === null) return null;
    const { text, tokenIds, textEnds, logprobs } = this.#pending;
    const { requestId, index, samplingParams, reasoningStart, numPromptTokens, numImageTokens } = this.#options;
    const { numVideoTokens = 0, numOmittedImages = 0 } = this.#options;
    const isFirst = !this.#hasBegun;
    this.#pending = null;
    this.#hasBegun = true;
    return {
      requestId,
      index,
      prompt: isFirst ? prompt : null,
      ...(isFirst && reasoningStart && { reasoningStart }),
      text,
      tokenIds,
      ...(textEnds.length > 1 && { textEnds }),
      logprobs: samplingParams.logprobs === null ? null : logprobs,
      ...(this.#embedding !== null && { embedding: this.#embedding }),
      finishReason: this.#finishReason,
      stopReason: this.#stopReason,
      numPromptTokens,
      numImageTokens,
      ...(numVideoTokens > 0 && { numVideoTokens }),
      ...(numOmittedImages > 0 && { numOmittedImages }),
      numCachedTokens: this.#numCachedTokens,
      numOutputTokens: this.#numOutputTokens,
    };
  }

  #decodeLogprobs(logprobs: SampledLogprobs): DecodedTokenLogprobs {
    const { vocabulary, samplingParams } = this.#options;
    const decoded = decodeLogprobs(logprobs, vocabulary);
    const isLeftOut = samplingParams.skipSpecialTokens && vocabulary.isSpecial(logprobs.sampled.tokenId);
    return isLeftOut ? { ...decoded, isLeftOut } : decoded;
  }

  /**
   * Returns the stop string that the token completed, if any. A token that ended the sequence becomes text only if
   * requested.
   */
  #appendText(pending: PendingOutput, tokenId: number, isStopToken: boolean): string | null {
    const { minTokens, includeStopStringInOutput } = this.#options.samplingParams;
    if (isStopToken && !includeStopStringInOutput) return null;
    const piece = this.#detokenizer.append(tokenId);
    const { text, matched } = this.#stopStrings.append(piece, this.#numOutputTokens > minTokens);
    pending.text += text;
    return matched;
  }

  #finish(finishReason: FinishReason, stopReason: string | number | null): void {
    this.#finishReason = finishReason;
    this.#stopReason = stopReason;
  }
}
