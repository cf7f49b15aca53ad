/** Converts the outputs of a request to the parts of the AI SDK's stream. */
import type { LanguageModelV4StreamPart, SharedV4Warning } from "@ai-sdk/provider";

import type { RequestOutput } from "../../engine/index.ts";
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

/** An answer is one text block. */
const textPartId = "0";

/**
 * In order: `stream-start`, `response-metadata`, one text block if there is text, `finish`. An error becomes a separate
 * part before `finish`. An abort ends the stream with the signal's reason.
 */
export async function* streamParts(
  outputs: AsyncIterable<RequestOutput>,
  { warnings, response, includeRawChunks, abortSignal }: StreamOptions,
): AsyncGenerator<LanguageModelV4StreamPart> {
  yield { type: "stream-start", warnings };
  yield { type: "response-metadata", ...response };
  let last: RequestOutput | null = null;
  let hasText = false;
  let failure: { readonly error: unknown } | null = null;
  try {
    for await (const output of outputs) {
      last = output;
      if (includeRawChunks) yield { type: "raw", rawValue: output };
      if (output.text === "") continue;
      if (!hasText) yield { type: "text-start", id: textPartId };
      hasText = true;
      yield { type: "text-delta", id: textPartId, delta: output.text };
    }
  } catch (error) {
    if (abortSignal?.aborted === true) throw error;
    failure = { error };
  }
  if (hasText) yield { type: "text-end", id: textPartId };
  if (failure !== null) yield { type: "error", error: failure.error };
  yield {
    type: "finish",
    finishReason: failure === null ? finishReasonOf(last) : { unified: "error", raw: "error" },
    usage: usageOf(last),
    providerMetadata: providerMetadataOf(last),
  };
}
