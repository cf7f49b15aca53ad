/** GET /v1/models and GET /v1/models/{id}. */
import type { Handler } from "hono";

import { modelNotFound } from "../../generation/generation-kind.ts";
import type { Service } from "../../service.ts";

/** Unix time in seconds when this process started to serve. Clients expect a date, but checkpoints have none. */
const created = Math.floor(Date.now() / 1000);

export function modelsRoute(service: Service, servedModelNames: readonly string[]): Handler {
  return (c) => c.json(toModelList(service, servedModelNames));
}

export function toModelList(service: Service, servedModelNames: readonly string[]): object {
  return { object: "list", data: servedModelNames.map((name) => toModelCard(name, service)) };
}

export function modelRoute(service: Service, servedModelNames: readonly string[]): Handler {
  return (c) => {
    const name = c.req.param("model") ?? "";
    if (servedModelNames.includes(name)) return c.json(toModelCard(name, service));
    throw modelNotFound(name, servedModelNames);
  };
}

function toModelCard(id: string, service: Service): object {
  const maxModelLen = service.engine?.modelInfo?.maxModelLen ?? null;
  return { id, object: "model", created, owned_by: "fovea", root: id, parent: null, max_model_len: maxModelLen };
}
