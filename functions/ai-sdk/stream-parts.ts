/** Converts the outputs of a request to the parts of the AI SDK's stream. */
import type { LanguageModelV4StreamPart, SharedV4Warning } from "@ai-sdk/provider";

import type { ParsedGeneration, ParsedToolCall, ToolCallDelta } from "../generation/parsed-output/parsed-delta.ts";
import { finishReasonOf, providerMetadataOf, usageOf } from "./results.ts";

export interface ResponseIds {
  readonly id: string;
  readonly timestamp: Date;
  readonly modelId: string;
}

export interface StreamOptions {
  readonly warnings: SharedV4Warning[];
  readonly response: ResponseIds;
  readonly includeRawChunks: boolean;
  readonly abortSignal: AbortSignal | undefined;
}

type Part = LanguageModelV4StreamPart;

/** An answer has one block of text and one of thinking. */
const textPartId = "0";
const reasoningPartId = "reasoning-0";

/**
 * In order: `stream-start`, `response-metadata`, the blocks of thinking, text and calls, `finish`. An error becomes a
 * separate part before `finish`. An abort ends the stream with the signal's reason.
 */
export async function* streamParts(
  generations: AsyncIterable<ParsedGeneration>,
  { warnings, response, includeRawChunks, abortSignal }: StreamOptions,
): AsyncGenerator<Part> {
  yield { type: "stream-start", warnings };
  yield { type: "response-metadata", ...response };
  const blocks = new OpenBlocks();
  let last: ParsedGeneration | null = null;
  let failure: { readonly error: unknown } | null = null;
  try {
    for await (const generation of generations) {
      last = generation;
      if (includeRawChunks) yield { type: "raw", rawValue: generation.output };
      const { reasoning, content, toolCalls = [] } = generation.delta;
      if (reasoning !== undefined) yield* blocks.addReasoning(reasoning);
      if (content !== undefined) yield* blocks.addText(content);
      for (const delta of toolCalls) yield* blocks.addCall(delta);
    }
  } catch (error) {
    if (abortSignal?.aborted === true) throw error;
    failure = { error };
  }
  yield* blocks.close();
  if (failure !== null) yield { type: "error", error: failure.error };
  yield {
    type: "finish",
    finishReason: failure === null ? finishReasonOf(last?.finishReason ?? null) : { unified: "error", raw: "error" },
    usage: usageOf(last?.output ?? null, last?.numReasoningTokens ?? 0),
    providerMetadata: providerMetadataOf(last?.output ?? null),
  };
}

/** Mutable. A call is complete when the next one starts, or at the end. */
class OpenBlocks {
  #hasText = false;
  #hasReasoning = false;
  #call: ParsedToolCall | null = null;

  *addReasoning(delta: string): Iterable<Part> {
    if (!this.#hasReasoning) yield { type: "reasoning-start", id: reasoningPartId };
    this.#hasReasoning = true;
    yield { type: "reasoning-delta", id: reasoningPartId, delta };
  }

  *addText(delta: string): Iterable<Part> {
    yield* this.#closeReasoning();
    if (!this.#hasText) yield { type: "text-start", id: textPartId };
    this.#hasText = true;
    yield { type: "text-delta", id: textPartId, delta };
  }

  *addCall({ start, arguments: delta }: ToolCallDelta): Iterable<Part> {
    yield* this.#closeReasoning();
    if (start !== undefined) {
      yield* this.#closeCall();
      this.#call = { ...start, arguments: "" };
      yield { type: "tool-input-start", id: start.id, toolName: start.name };
    }
    if (this.#call === null || delta === "") return;
    this.#call = { ...this.#call, arguments: this.#call.arguments + delta };
    yield { type: "tool-input-delta", id: this.#call.id, delta };
  }

  *close(): Iterable<Part> {
    yield* this.#closeReasoning();
    yield* this.#closeCall();
    if (this.#hasText) yield { type: "text-end", id: textPartId };
  }

  *#closeReasoning(): Iterable<Part> {
    if (this.#hasReasoning) yield { type: "reasoning-end", id: reasoningPartId };
    this.#hasReasoning = false;
  }

  *#closeCall(): Iterable<Part> {
    if (this.#call === null) return;
    const { id, name, arguments: input } = this.#call;
    yield { type: "tool-input-end", id };
    yield { type: "tool-call", toolCallId: id, toolName: name, input };
    this.#call = null;
  }
}
