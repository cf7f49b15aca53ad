/** Outputs of all sequences of a request, in the order in which the caller reads them. */
import { EngineError, invariant } from "../contract/errors.ts";
import type { DecodedPrompt, RequestOutput } from "../contract/request-output.ts";
import type { EngineCoreOutput } from "../thread/messages.ts";
import { decodePrompt } from "./decode-logprobs.ts";
import type { PromptTokens } from "./decode-logprobs.ts";
import { SequenceOutputs } from "./output-processor.ts";
import type { SequenceOutputsOptions } from "./output-processor.ts";

export interface RequestOutputsOptions extends Omit<SequenceOutputsOptions, "index"> {
  /** What the first output of each sequence says about the prompt; null for nothing. */
  readonly prompt: PromptTokens | null;
}

/**
 * Mutable. An error of one sequence is an error of the whole request. Output that arrives while the consumer is busy is
 * merged into one output per sequence, so a slow consumer costs only the size of its text, not a queue of steps.
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
