/** The common part of the routes that compute something for a request without generating text. */
import type { Context, Handler } from "hono";

import { EngineError } from "../../engine/index.ts";
import type { GenerationRequest } from "../../engine/index.ts";
import type { AppDependencies } from "../app-dependencies.ts";
import { createRequests, parseBody } from "../generation/generation-kind.ts";
import type { CommonFields, ParsedBody, PromptKind } from "../generation/generation-kind.ts";
import { readJsonObject } from "../http/json-body.ts";
import { countsOf } from "../http/request-trace.ts";
import type { AppEnvironment } from "../http/request-trace.ts";
import type { Admission } from "../service.ts";

export interface AdmittedRequest {
  readonly c: Context<AppEnvironment>;
  readonly body: object;
  readonly admission: Admission;
}

/** Bounded like the routes that generate: by the size of the body, the number of bodies and the number of requests. */
export function admittedRoute(
  { service, bodies, config }: Pick<AppDependencies, "service" | "bodies" | "config">,
  answer: (request: AdmittedRequest) => Promise<object>,
): Handler<AppEnvironment> {
  return async (c) => {
    service.checkRoom();
    const body = await readJsonObject(c.req.raw, config.maxBodyBytes, bodies);
    const admission = service.admit(c.req.raw.signal);
    try {
      return c.json(await answer({ c, body, admission }));
    } catch (error) {
      const { reason } = admission.signal;
      throw reason instanceof EngineError ? reason : error;
    } finally {
      admission.release();
    }
  };
}

export interface PromptsOfBody<Fields> extends ParsedBody<Fields> {
  /** One per prompt. */
  readonly requests: readonly GenerationRequest[];
}

/** The prompts of a body as the route that generates for it would send them to the engine. Throws like that route. */
export function promptsOf<Fields extends CommonFields>(
  kind: PromptKind<Fields>,
  { c, body, admission }: AdmittedRequest,
  { config, metrics }: Pick<AppDependencies, "config" | "metrics">,
): PromptsOfBody<Fields> {
  const parsed = parseBody(kind, body, config);
  const { paths, head } = parsed;
  c.set("requestPaths", paths);
  const requests = createRequests(kind, parsed, { engine: admission.engine, config, tenant: c.get("tenant") });
  metrics.addMedia(paths);
  Object.assign(c.get("logFields"), { model: head.model, ...countsOf(paths) });
  return { ...parsed, requests };
}

/** The request of a body that has exactly one prompt. */
export function onlyRequestOf({ requests }: Pick<PromptsOfBody<unknown>, "requests">): GenerationRequest {
  const request = requests.at(0);
  if (request === undefined) throw new Error("A body without a prompt was accepted.");
  return request;
}
