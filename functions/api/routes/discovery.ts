/** GET /: describes the service and its routes. Browsers are redirected to the playground, if it is on. */
import type { Handler } from "hono";

import type { ApiConfig } from "../../app-dependencies.ts";
import type { Service } from "../../service.ts";

export function discoveryRoute(service: Service, { servedModelNames, hasPlayground }: ApiConfig): Handler {
  return (c) => {
    c.header("Vary", "Accept", { append: true });
    if (hasPlayground && c.req.header("accept")?.includes("text/html")) return c.redirect("playground");
    return c.json({
      name: "fovea",
      status: service.state,
      models: servedModelNames,
      architecture: service.engine?.modelInfo?.architecture ?? null,
      max_model_len: service.engine?.modelInfo?.maxModelLen ?? null,
      routes: {
        chat_completions: "/v1/chat/completions",
        completions: "/v1/completions",
        responses: "/v1/responses",
        responses_input_tokens: "/v1/responses/input_tokens",
        embeddings: "/v1/embeddings",
        pooling: "/pooling",
        rerank: "/v1/rerank",
        score: "/v1/score",
        messages: "/v1/messages",
        messages_count_tokens: "/v1/messages/count_tokens",
        chat_completions_render: "/v1/chat/completions/render",
        completions_render: "/v1/completions/render",
        tokenize: "/tokenize",
        detokenize: "/detokenize",
        invocations: "/invocations",
        predictions: "/predictions",
        open_inference: "/v2",
        models: "/v1/models",
        files: "/v1/files",
        batches: "/v1/batches",
        logits_processors: "/v1/logits-processors",
        pipelines: "/v1/pipelines",
        health: "/health",
        liveness: "/livez",
        load: "/load",
        version: "/version",
        metrics: "/metrics",
      },
    });
  };
}
