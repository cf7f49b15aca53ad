/** Turns the engine thread's tokens into the outputs of a request: texts and logprobs of each of its sequences. */
import type { TaskName } from "../contract/config.ts";
import { EngineError, invariant } from "../contract/errors.ts";
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
import type { StopStringResult } from "../text/stop-strings.ts";
import { IncrementalDetokenizer } from "../text/token-bytes.ts";
import type { Vocabulary } from "../text/vocabulary.ts";
import type { EngineCoreOutput } from "../thread/messages.ts";
import { decodeLogprobs, decodePrompt } from "./decode-logprobs.ts";
import type { PromptTokens } from "./decode-logprobs.ts";

export interface SequenceOutputsOptions {
  readonly requestId: string;
  /** Index of the sequence within its request. */
  readonly index: number;
  /** Default `generate`. */
  readonly task?: TaskName;
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
  /** Null for a request without any. */
  readonly #stopStrings: StopStrings | null;
  #pending: PendingOutput | null = null;
  /** Whether the consumer has read an output. */
  #hasBegun = false;
  #numOutputTokens = 0;
  #numCachedTokens = 0;
  #pooled: Float32Array | null = null;
  #finishReason: FinishReason | null = null;
  #stopReason: string | number | null = null;

  constructor(options: SequenceOutputsOptions) {
    const { stop, includeStopStringInOutput, skipSpecialTokens } = options.samplingParams;
    this.#options = options;
    this.#detokenizer = new IncrementalDetokenizer(options.vocabulary, { skipSpecialTokens });
    this.#stopStrings =
      stop.length === 0 ? null : new StopStrings({ stop, includeInOutput: includeStopStringInOutput });
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
    this.#pooled = output.pooled ?? null;
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
      const { text, matched } = this.#findStop(this.#detokenizer.finish(), false);
      invariant(matched === null, "unchecked text matched a stop string");
      pending.text += text + (this.#stopStrings?.finish() ?? "");
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
      ...(this.#pooled !== null && pooledOutput(this.#pooled, this.#options.task)),
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
    const { text, matched } = this.#findStop(piece, this.#numOutputTokens > minTokens);
    pending.text += text;
    return matched;
  }

  #findStop(piece: string, isChecked: boolean): StopStringResult {
    return this.#stopStrings?.append(piece, isChecked) ?? { text: piece, matched: null };
  }

  #finish(finishReason: FinishReason, stopReason: string | number | null): void {
    this.#finishReason = finishReason;
    this.#stopReason = stopReason;
  }
}

export interface RequestOutputsOptions extends Omit<SequenceOutputsOptions, "index"> {
  /** What the first output of each sequence says about the prompt; null for nothing. */
  readonly prompt: PromptTokens | null;
}

/**
 * Outputs of all sequences of a request, in the order in which the caller reads them. Mutable. An error of one sequence is
 * an error of the whole request. Output that arrives while the consumer is busy is merged into one output per sequence, so
 * a slow consumer costs only the size of its text, not a queue of steps.
 */
export class RequestOutputs {
  readonly #options: RequestOutputsOptions;
  readonly #sequences: readonly SequenceOutputs[];
  /** Null until the first sequence has computed the prompt's logprobs, or if no prompt was requested. */
  #prompt: DecodedPrompt | null = null;
  /** The output that has the prompt's logprobs, until they are decoded. */
  #firstOutput: EngineCoreOutput | null = null;
  #hasPrompt = false;
  #error: EngineError | null = null;
  #consumer: PromiseWithResolvers<void> | null = null;
  /** The search for readable output starts here, so that no sequence waits behind a busy one. */
  #nextIndex = 0;

  constructor(options: RequestOutputsOptions, numSequences = 1) {
    this.#options = options;
    this.#sequences = Array.from({ length: numSequences }, (_, index) => new SequenceOutputs({ ...options, index }));
  }

  /** True once no more tokens are accepted. Earlier output may still be unread. */
  get isFinished(): boolean {
    return this.#error !== null || this.#sequences.every(({ isFinished }) => isFinished);
  }

  /** Whether the sequence takes no more tokens. */
  hasEnded(index: number): boolean {
    return this.#error !== null || this.#sequences[index]!.isFinished;
  }

  /**
   * Appends a step's tokens of one sequence. Returns true if a stop string ended the text although the engine thread
   * would continue: the caller then aborts the sequence there. Tokens after the end are dropped. The prompt's logprobs
   * arrive with the first tokens of the first sequence, and the other sequences wait for them.
   */
  append(output: EngineCoreOutput, index = 0): boolean {
    if (this.hasEnded(index)) return false;
    if (output.finishReason === "error" || output.finishReason === "abort") {
      this.fail(errorOf(output));
      return false;
    }
    if (index === 0 && this.#options.prompt !== null && !this.#hasPrompt) {
      this.#hasPrompt = true;
      this.#firstOutput = output;
    }
    const isEndedHere = this.#sequences[index]!.append(output);
    this.#wakeConsumer();
    return isEndedHere;
  }

  /** Ends the request with an error, which the consumer gets instead of pending output. */
  fail(error: EngineError): void {
    if (this.isFinished) return;
    this.#error = error;
    this.#wakeConsumer();
  }

  /**
   * Returns everything since the last output of one sequence, as soon as there is something. Rejects with the error
   * that ended the request.
   */
  async next(): Promise<RequestOutput> {
    while (true) {
      if (this.#error !== null) throw this.#error;
      if (this.#firstOutput !== null) {
        const { promptLogprobs = null } = this.#firstOutput;
        this.#firstOutput = null;
        this.#prompt = await this.#describePrompt(promptLogprobs);
        continue;
      }
      const output = this.#takeNext();
      if (output !== null) return output;
      invariant(!this.isFinished, "read beyond the last output");
      this.#consumer = Promise.withResolvers();
      await this.#consumer.promise;
    }
  }

  async #describePrompt(promptLogprobs: EngineCoreOutput["promptLogprobs"] = null): Promise<DecodedPrompt | null> {
    const { prompt, vocabulary } = this.#options;
    return prompt === null ? null : decodePrompt(prompt, promptLogprobs, vocabulary);
  }

  #takeNext(): RequestOutput | null {
    if (this.#options.prompt !== null && this.#prompt === null) return null;
    for (let offset = 0; offset < this.#sequences.length; offset += 1) {
      const index = (this.#nextIndex + offset) % this.#sequences.length;
      const output = this.#sequences[index]!.take(this.#prompt);
      if (output === null) continue;
      this.#nextIndex = index + 1;
      return output;
    }
    return null;
  }

  #wakeConsumer(): void {
    this.#consumer?.resolve();
    this.#consumer = null;
  }
}

function errorOf({ error }: EngineCoreOutput): EngineError {
  if (error === null) return new EngineError("aborted", "The request was aborted.");
  return new EngineError(error.code, error.message);
}

/** @param values The logits of the classes, the state of the prompt's last token, or projections of those of all tokens. */
function pooledOutput(
  values: Float32Array,
  task: TaskName | undefined,
): Pick<RequestOutput, "embedding" | "tokenEmbeddings" | "score"> {
  if (task === "embed") return { embedding: values };
  if (task === "token_embed") return { tokenEmbeddings: values };
  const [first = 0, second] = values;
  return { score: second === undefined ? first : second - first };
}
