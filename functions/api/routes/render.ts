/**
 * POST /v1/chat/completions/render and /v1/completions/render: the prompts of a body as tokens, with the hashes and
 * positions of their images and videos, for routers that choose a replica by its caches. vLLM's `GenerateRequest`.
 */
import type { Handler } from "hono";

import type { GenerationRequest, RenderedImage, RenderedPrompt } from "../../../engine/index.ts";
import type { AppDependencies } from "../../app-dependencies.ts";
import { chatCompletionKind } from "../../generation/chat-completion-kind.ts";
import { completionKind } from "../../generation/completion-kind.ts";
import type { CommonFields } from "../../generation/generation-kind.ts";
import { toWireSamplingParams } from "../../generation/wire-sampling-params.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { admittedRoute, onlyRequestOf, promptsOf } from "../admitted-route.ts";
import type { AdmittedRequest, PromptsOfBody } from "../admitted-route.ts";

interface RenderedFields extends CommonFields {
  readonly cache_salt?: string | null | undefined;
}

export function renderChatCompletionRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return admittedRoute(dependencies, async (request) => {
    const parsed = promptsOf(chatCompletionKind, request, dependencies);
    return renderOne(parsed, parsed.head.id, onlyRequestOf(parsed), request);
  });
}

export function renderCompletionRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return admittedRoute(dependencies, async (request) => {
    const parsed = promptsOf(completionKind, request, dependencies);
    // One after the other, so that a body with many prompts counts as one request of the engine.
    const rendered: object[] = [];
    for (const [index, prompt] of parsed.requests.entries()) {
      rendered.push(await renderOne(parsed, `${parsed.head.id}-${index}`, prompt, request));
    }
    return rendered;
  });
}

async function renderOne(
  { fields, head }: PromptsOfBody<RenderedFields>,
  id: string,
  request: GenerationRequest,
  { admission: { engine, signal } }: AdmittedRequest,
): Promise<object> {
  const prompt = await engine.render(request, { signal });
  const room = (engine.modelInfo?.maxModelLen ?? Number.POSITIVE_INFINITY) - prompt.tokenIds.length;
  return {
    request_id: id,
    token_ids: prompt.tokenIds,
    features: toFeatures(prompt),
    sampling_params: toWireSamplingParams(request, room),
    model: head.model,
    stream: fields.stream === true,
    stream_options: fields.stream === true ? (fields.stream_options ?? null) : null,
    cache_salt: fields.cache_salt ?? null,
    priority: request.priority ?? 0,
  };
}

/** By modality. Null for a prompt without images and videos. */
function toFeatures({ images }: RenderedPrompt): object | null {
  if (images.length === 0) return null;
  const byModality = (valueOf: (item: RenderedImage) => unknown): object =>
    Object.fromEntries(
      [...Map.groupBy(images, ({ modality }) => modality)].map(([modality, items]) => [modality, items.map(valueOf)]),
    );
  return {
    mm_hashes: byModality(({ mmHash }) => mmHash),
    mm_placeholders: byModality(({ offset, length }) => ({ offset, length })),
    // Tensors are not sent.
    kwargs_data: null,
  };
}
