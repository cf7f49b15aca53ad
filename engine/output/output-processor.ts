/** From the engine thread's tokens to text, logprobs and the prompt in words: one object per sequence. */
import { invariant } from "../errors.ts";
import { IncrementalDetokenizer } from "../text/incremental-detokenizer.ts";
import { StopStrings } from "../text/stop-strings.ts";
import type { EngineCoreOutput } from "../core/messages.ts";
import type {
  DecodedLogprob,
  DecodedPrompt,
  DecodedTokenLogprobs,
  FinishReason,
  RequestOutput,
  SampledLogprobs,
} from "../request-output.ts";
import type { SamplingParams } from "../sampling-params.ts";
import type { Vocabulary } from "../text/tokenizer.ts";

export interface SequenceOutputsOptions {
  readonly requestId: string;
  /** Of the sequence among the request's. */
  readonly index: number;
  readonly samplingParams: SamplingParams;
  readonly vocabulary: Vocabulary;
  readonly numPromptTokens: number;
  readonly numImageTokens: number;
  /** What the first output is to tell of the prompt; null for nothing. */
  readonly prompt: { readonly text: string; readonly tokenIds: readonly number[] } | null;
}

/** What the consumer has not taken yet. */
interface PendingOutput {
  text: string;
  readonly tokenIds: number[];
  readonly logprobs: DecodedTokenLogprobs[];
  readonly prompt: DecodedPrompt | null;
}

/** Mutable. */
export class SequenceOutputs {
  readonly #options: SequenceOutputsOptions;
  readonly #detokenizer: IncrementalDetokenizer;
  readonly #stopStrings: StopStrings;
  #pending: PendingOutput | null = null;
  #hasBegun = false;
  #numOutputTokens = 0;
  #numCachedTokens = 0;
  #finishReason: FinishReason | null = null;
  #stopReason: string | number | null = null;

  constructor(options: SequenceOutputsOptions) {
    const { stop, includeStopStringInOutput, skipSpecialTokens } = options.samplingParams;
    this.#options = options;
    this.#detokenizer = new IncrementalDetokenizer(options.vocabulary, { skipSpecialTokens });
    this.#stopStrings = new StopStrings({ stop, includeInOutput: includeStopStringInOutput });
  }

  /** True once nothing more is taken in; what was taken in may still be unread. */
  get isFinished(): boolean {
    return this.#finishReason !== null;
  }

  /**
   * Takes in a step's tokens. True when a stop string ended the text before the sequence; tokens after the end are
   * dropped. Not to be called once finished.
   */
  append(output: EngineCoreOutput): boolean {
    invariant(!this.isFinished, "tokens came after the end of a sequence");
    this.#numCachedTokens = output.numCachedTokens;
    const pending = (this.#pending ??= { text: "", tokenIds: [], logprobs: [], prompt: this.#describePrompt(output) });
    for (const [index, tokenId] of output.tokenIds.entries()) {
      const isLast = output.finishReason !== null && index === output.tokenIds.length - 1;
      pending.tokenIds.push(tokenId);
      if (output.logprobs !== null) pending.logprobs.push(this.#decodeLogprobs(output.logprobs[index]));
      this.#numOutputTokens += 1;
      const matched = this.#appendText(pending, tokenId, isLast && output.finishReason === "stop");
      if (matched !== null) {
        this.#finish("stop", matched);
        return output.finishReason === null;
      }
    }
    if (output.finishReason !== null) {
      const { text, matched } = this.#stopStrings.append(this.#detokenizer.finish(), false);
      invariant(matched === null, "unchecked text matched a stop string");
      pending.text += text + this.#stopStrings.finish();
      this.#finish(output.finishReason, output.stopReason);
    }
    return false;
  }

  /** Everything since the last output; null where there is nothing. */
  take(): RequestOutput | null {
    if (this.#pending === null) return null;
    const { text, tokenIds, logprobs, prompt } = this.#pending;
    const { requestId, index, samplingParams, numPromptTokens, numImageTokens } = this.#options;
    this.#pending = null;
    return {
      requestId,
      index,
      prompt,
      text,
      tokenIds,
      logprobs: samplingParams.logprobs === null ? null : logprobs,
      finishReason: this.#finishReason,
      stopReason: this.#stopReason,
      numPromptTokens,
      numImageTokens,
      numCachedTokens: this.#numCachedTokens,
      numOutputTokens: this.#numOutputTokens,
    };
  }

  /** The stop string that the token completed. A token that ended the sequence is text only when asked for. */
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

  /** Null but for the first output. */
  #describePrompt({ promptLogprobs = null }: EngineCoreOutput): DecodedPrompt | null {
    const { prompt } = this.#options;
    if (prompt === null || this.#hasBegun) return null;
    this.#hasBegun = true;
    const logprobs = promptLogprobs?.map((logprob) => this.#decodeLogprobs(logprob)) ?? null;
    return {
      text: prompt.text,
      tokens: prompt.tokenIds.map((tokenId) => this.#decode({ tokenId })),
      logprobs: logprobs === null ? null : [null, ...logprobs],
    };
  }

  #decodeLogprobs({ sampled, top }: SampledLogprobs): DecodedTokenLogprobs {
    return { sampled: this.#decode(sampled), top: top.map((logprob) => this.#decode(logprob)) };
  }

  #decode<Token extends { readonly tokenId: number }>(token: Token): Token & Pick<DecodedLogprob, "token" | "bytes"> {
    const bytes = this.#options.vocabulary.tokenBytes(token.tokenId);
    return { ...token, token: Buffer.from(bytes).toString(), bytes: [...bytes] };
  }
}
