/**
 * Names of OpenTelemetry's semantic conventions for generative AI.
 *
 * @see https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
 */
import type { GenerationRequest } from "../../engine/index.ts";
import type { RequestSpan, SpanAttributes } from "./telemetry.ts";

/** Not among the convention's well-known values: its own name, as it says for others. */
const provider = "fovea";

/** Attributes of a request's parameters. Its prompts share everything but their texts. */
export function requestAttributes(
  { idPrefix }: { readonly idPrefix: string },
  model: string,
  [request]: readonly GenerationRequest[],
): SpanAttributes {
  if (request === undefined) return {};
  const { samplingParams, numChoices = 1, task = "generate" } = request;
  if (task !== "generate") {
    return {
      // The convention has no name for scores, and allows others.
      "gen_ai.operation.name": task === "score" ? "rerank" : "embeddings",
      "gen_ai.provider.name": provider,
      "gen_ai.request.model": model,
    };
  }
  const { temperature, topP, topK, maxTokens, seed, stop, frequencyPenalty, presencePenalty } = samplingParams;
  return {
    "gen_ai.operation.name": idPrefix.startsWith("cmpl") ? "text_completion" : "chat",
    "gen_ai.provider.name": provider,
    "gen_ai.request.model": model,
    "gen_ai.request.temperature": temperature,
    "gen_ai.request.top_p": topP,
    "gen_ai.request.top_k": topK === 0 ? undefined : topK,
    "gen_ai.request.max_tokens": maxTokens ?? undefined,
    "gen_ai.request.seed": seed ?? undefined,
    "gen_ai.request.frequency_penalty": frequencyPenalty,
    "gen_ai.request.presence_penalty": presencePenalty,
    "gen_ai.request.stop_sequences": stop.length === 0 ? undefined : stop,
    "gen_ai.request.choice.count": numChoices === 1 ? undefined : numChoices,
  };
}

/** The requests, whose stages become spans below the given one. */
export function traced(requests: readonly GenerationRequest[], span: RequestSpan): readonly GenerationRequest[] {
  return requests.map((request) => ({ ...request, onStage: (stage) => span.addStage(stage) }));
}

/** Attributes of the answer, from the request's line in the access log. */
export function answerAttributes(logFields: Readonly<Record<string, unknown>>): SpanAttributes {
  const { id, model, promptTokens, completionTokens, finishReason, timeToFirstTokenMs } = logFields;
  const { images, videos, documents } = logFields;
  return {
    // Other ids are those of jobs, files and batches.
    "gen_ai.response.id": finishReason === undefined ? undefined : textOf(id),
    "gen_ai.response.model": textOf(model),
    "gen_ai.usage.input_tokens": numberOf(promptTokens),
    "gen_ai.usage.output_tokens": numberOf(completionTokens),
    "gen_ai.response.finish_reasons": typeof finishReason === "string" ? [finishReason] : undefined,
    // vLLM's name; the convention has none for servers.
    "gen_ai.latency.time_to_first_token":
      typeof timeToFirstTokenMs === "number" ? timeToFirstTokenMs / 1000 : undefined,
    "fovea.images": numberOf(images),
    "fovea.videos": numberOf(videos),
    "fovea.documents": numberOf(documents),
  };
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}
