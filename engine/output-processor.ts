/** From the engine thread's tokens to the text a caller reads: one stream per request. */
import { EngineError, invariant } from "./errors.ts";
import { IncrementalDetokenizer } from "./text/incremental-detokenizer.ts";
import { StopStrings } from "./text/stop-strings.ts";
import type { EngineCoreOutput } from "./core/messages.ts";
import type {
  DecodedLogprob,
  DecodedTokenLogprobs,
  FinishReason,
  RequestOutput,
  SampledLogprobs,
  TokenLogprob,
} from "./request-output.ts";
import type { SamplingParams } from "./sampling-params.ts";
import type { Vocabulary } from "./text/tokenizer.ts";

export interface RequestOutputsOptions {
  readonly requestId: string;
  readonly samplingParams: SamplingParams;
  readonly vocabulary: Vocabulary;
  readonly numPromptTokens: number;
  readonly numImageTokens: number;
}

/** What the consumer has not taken yet. */
interface PendingOutput {
  text: string;
  readonly tokenIds: number[];
  readonly logprobs: DecodedTokenLogprobs[];
}

/**
 * The outputs of one request, mutable. Whatever comes while the consumer is busy is merged into one output, so a slow
 * consumer costs the size of its text, never a queue of steps.
 */
export class RequestOutputs {
  readonly #options: RequestOutputsOptions;
  readonly #detokenizer: IncrementalDetokenizer;
  readonly #stopStrings: StopStrings;
  #pending: PendingOutput | null = null;
  #numOutputTokens = 0;
  #numCachedTokens = 0;
  #finishReason: FinishReason | null = null;
  #stopReason: string | number | null = null;
  #error: EngineError | null = null;
  #consumer: PromiseWithResolvers<void> | null = null;

  constructor(options: RequestOutputsOptions) {
    const { stop, includeStopStringInOutput, skipSpecialTokens } = options.samplingParams;
    this.#options = options;
    this.#detokenizer = new IncrementalDetokenizer(options.vocabulary, { skipSpecialTokens });
    this.#stopStrings = new StopStrings({ stop, includeInOutput: includeStopStringInOutput });
  }

  /** True once nothing more is taken in; what was taken in may still be unread. */
  get isFinished(): boolean {
    return this.#finishReason !== null || this.#error !== null;
  }

  /**
   * Takes in a step's tokens. True when a stop string ended the text that the engine thread would go on with: the
   * caller then aborts the sequence there. Tokens after the end are dropped.
   */
  append(output: EngineCoreOutput): boolean {
    if (this.isFinished) return false;
    if (output.finishReason === "error" || output.finishReason === "abort") {
      this.fail(errorOf(output));
      return false;
    }
    this.#numCachedTokens = output.numCachedTokens;
    const pending = (this.#pending ??= { text: "", tokenIds: [], logprobs: [] });
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
    this.#wakeConsumer();
    return false;
  }

  /** Ends the request with an error that the consumer gets in place of what is pending. */
  fail(error: EngineError): void {
    if (this.isFinished) return;
    this.#error = error;
    this.#wakeConsumer();
  }

  /** Everything since the last output, as soon as there is something. Rejects with the error that ended the request. */
  async next(): Promise<RequestOutput> {
    while (true) {
      if (this.#error !== null) throw this.#error;
      if (this.#pending !== null) return this.#take(this.#pending);
      invariant(this.#finishReason === null, "read beyond the last output");
      this.#consumer = Promise.withResolvers();
      await this.#consumer.promise;
    }
  }

  #take({ text, tokenIds, logprobs }: PendingOutput): RequestOutput {
    const { requestId, samplingParams, numPromptTokens, numImageTokens } = this.#options;
    this.#pending = null;
    return {
      requestId,
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
    this.#wakeConsumer();
  }

  #wakeConsumer(): void {
    this.#consumer?.resolve();
    this.#consumer = null;
  }

  #decodeLogprobs({ sampled, top }: SampledLogprobs): DecodedTokenLogprobs {
    return { sampled: this.#decode(sampled), top: top.map((logprob) => this.#decode(logprob)) };
  }

  #decode(logprob: TokenLogprob): DecodedLogprob {
    const bytes = this.#options.vocabulary.tokenBytes(logprob.tokenId);
    return { ...logprob, token: Buffer.from(bytes).toString(), bytes: [...bytes] };
  }
}

function errorOf({ error }: EngineCoreOutput): EngineError {
  if (error === null) return new EngineError("aborted", "The request was aborted.");
  return new EngineError(error.code, error.message);
}
