/** GET /v1/models and GET /v1/models/{id}, in OpenAI's form, or in Anthropic's for its clients. */
import type { Handler } from "hono";

import { modelNotFound } from "../../generation/generation-kind.ts";
import { isFromAnthropicClient } from "../../http/anthropic-error.ts";
import type { Service } from "../../service.ts";

/** Unix time in seconds when this process started to serve. Clients expect a date, but checkpoints have none. */
const created = Math.floor(Date.now() / 1000);

export function modelsRoute(service: Service, servedModelNames: readonly string[]): Handler {
  return (c) => {
    if (!isFromAnthropicClient(c)) return c.json(toModelList(service, servedModelNames));
    const data = servedModelNames.map((name) => toAnthropicModel(name, service));
    // All names are one page.
    const ends = { first_id: servedModelNames.at(0) ?? null, last_id: servedModelNames.at(-1) ?? null };
    return c.json({ data, has_more: false, ...ends });
  };
}

export function toModelList(service: Service, servedModelNames: readonly string[]): object {
  return { object: "list", data: servedModelNames.map((name) => toModelCard(name, service, servedModelNames)) };
}

export function modelRoute(service: Service, servedModelNames: readonly string[]): Handler {
  return (c) => {
    const name = c.req.param("model") ?? "";
    if (!servedModelNames.includes(name)) throw modelNotFound(name, servedModelNames);
    const card = isFromAnthropicClient(c)
      ? toAnthropicModel(name, service)
      : toModelCard(name, service, servedModelNames);
    return c.json(card);
  };
}

/** The parent of an adapter is its model. */
function toModelCard(id: string, service: Service, [model = id]: readonly string[]): object {
  const parent = service.engine?.modelInfo?.adapters?.includes(id) === true ? model : null;
  const maxModelLen = maxModelLenOf(service);
  return { id, object: "model", created, owned_by: "fovea", root: id, parent, max_model_len: maxModelLen };
}

/** The prompt and the answer share the model length. */
function toAnthropicModel(id: string, service: Service): object {
  const maxModelLen = maxModelLenOf(service);
  return {
    type: "model",
    id,
    display_name: id,
    created_at: new Date(created * 1000).toISOString(),
    max_input_tokens: maxModelLen,
    max_tokens: maxModelLen,
    capabilities: null,
    line: null,
    lifecycle: "active",
    deprecated_at: null,
    retires_at: null,
  };
}

function maxModelLenOf({ engine }: Service): number | null {
  return engine?.modelInfo?.maxModelLen ?? null;
}
