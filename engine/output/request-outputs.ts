/** What the caller of one request reads: the outputs of all its sequences, as they come. */
import { EngineError, invariant } from "../contract/errors.ts";
import type { DecodedPrompt, RequestOutput } from "../contract/request-output.ts";
import type { EngineCoreOutput } from "../thread/messages.ts";
import { decodePrompt } from "./decode-logprobs.ts";
import type { PromptTokens } from "./decode-logprobs.ts";
import { SequenceOutputs } from "./output-processor.ts";
import type { SequenceOutputsOptions } from "./output-processor.ts";

export interface RequestOutputsOptions extends Omit<SequenceOutputsOptions, "index"> {
  /** What the first output of each sequence is to tell of the prompt; null for nothing. */
  readonly prompt: PromptTokens | null;
}

/**
 * Mutable. An error of one sequence is the whole request's. Whatever comes while the consumer is busy is merged into one
 * output a sequence, so a slow consumer costs the size of its text, never a queue of steps.
 */
export class RequestOutputs {
  readonly #options: RequestOutputsOptions;
  readonly #sequences: readonly SequenceOutputs[];
  /** Null until the first sequence has computed what is to be told of it, and where that is nothing. */
  #prompt: DecodedPrompt | null = null;
  #error: EngineError | null = null;
  #consumer: PromiseWithResolvers<void> | null = null;
  /** Where the search for something to read begins, so that no sequence waits behind a busy one. */
  #nextIndex = 0;

  constructor(options: RequestOutputsOptions, numSequences = 1) {
    this.#options = options;
    this.#sequences = Array.from({ length: numSequences }, (_, index) => new SequenceOutputs({ ...options, index }));
  }

  /** True once nothing more is taken in; what was taken in may still be unread. */
  get isFinished(): boolean {
    return this.#error !== null || this.#sequences.every(({ isFinished }) => isFinished);
  }

  /**
   * Takes in a step's tokens of one sequence. True when a stop string ended the text that the engine thread would go on
   * with: the caller then aborts the sequence there. Tokens after the end are dropped. Logprobs of the prompt come with
   * the first tokens of the first sequence, and the others wait for them.
   */
  append(output: EngineCoreOutput, index = 0): boolean {
    if (this.#error !== null || this.#sequences[index].isFinished) return false;
    if (output.finishReason === "error" || output.finishReason === "abort") {
      this.fail(errorOf(output));
      return false;
    }
    if (index === 0) this.#prompt ??= this.#describePrompt(output);
    const isEndedHere = this.#sequences[index].append(output);
    this.#wakeConsumer();
    return isEndedHere;
  }

  /** Ends the request with an error that the consumer gets in place of what is pending. */
  fail(error: EngineError): void {
    if (this.isFinished) return;
    this.#error = error;
    this.#wakeConsumer();
  }

  /**
   * Everything since the last output of one of the sequences, as soon as there is something. Rejects with the error that
   * ended the request.
   */
  async next(): Promise<RequestOutput> {
    while (true) {
      if (this.#error !== null) throw this.#error;
      const output = this.#takeNext();
      if (output !== null) return output;
      invariant(!this.isFinished, "read beyond the last output");
      this.#consumer = Promise.withResolvers();
      await this.#consumer.promise;
    }
  }

  #describePrompt({ promptLogprobs = null }: EngineCoreOutput): DecodedPrompt | null {
    const { prompt, vocabulary } = this.#options;
    return prompt === null ? null : decodePrompt(prompt, promptLogprobs, vocabulary);
  }

  #takeNext(): RequestOutput | null {
    if (this.#options.prompt !== null && this.#prompt === null) return null;
    for (let offset = 0; offset < this.#sequences.length; offset += 1) {
      const index = (this.#nextIndex + offset) % this.#sequences.length;
      const output = this.#sequences[index].take(this.#prompt);
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
