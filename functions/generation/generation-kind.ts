/** The kinds of requests that generate text, and the conversion of their bodies to engine requests. */
import { randomUUID } from "node:crypto";
import type { z } from "zod";

import type { Engine, ExtraArguments, GenerationRequest } from "../../engine/index.ts";
import { HttpError } from "../http/errors.ts";
import type { RequestPaths } from "../http/wire-parameter.ts";
import type { Config } from "../settings/config.ts";
import type { AnswerHead, StreamUsageOptions } from "./chat-answer.ts";
import type { Generation } from "./generations.ts";
import { parseFields } from "./schemas/parse-fields.ts";
import { refuseUnservedFields } from "./schemas/unserved-fields.ts";
import type { UnservedFields } from "./schemas/unserved-fields.ts";
import type { RequestDefaults } from "./to-engine-request.ts";

export interface CommonFields {
  readonly model?: string | null | undefined;
  readonly stream?: boolean | null | undefined;
  readonly stream_options?:
    | {
        readonly include_usage?: boolean | null | undefined;
        readonly continuous_usage_stats?: boolean | null | undefined;
      }
    | null
    | undefined;
}

/** One kind of request: its fields and its answers. */
export interface GenerationKind<Fields extends CommonFields> {
  readonly idPrefix: string;
  readonly schema: z.ZodType<Fields>;
  readonly unservedFields: UnservedFields;
  toRequests(requestId: string, fields: Fields, defaults: RequestDefaults): readonly GenerationRequest[];
  paths(fields: Fields): RequestPaths;
  toAnswer(head: AnswerHead, generations: AsyncIterable<Generation>, fields: Fields): Promise<object>;
  toChunks(
    head: AnswerHead,
    generations: AsyncIterable<Generation>,
    usage: StreamUsageOptions,
    fields: Fields,
  ): AsyncGenerator<object>;
}

/** A body whose fields have valid types. */
export interface ParsedBody<Fields> {
  readonly fields: Fields;
  readonly head: AnswerHead;
  /** For errors that name a field. */
  readonly paths: RequestPaths;
}

/** Throws HttpError 400 that names the field, or 404 for an unknown model. */
export function parseBody<Fields extends CommonFields>(
  kind: GenerationKind<Fields>,
  body: object,
  servedModelNames: readonly string[],
): ParsedBody<Fields> {
  refuseUnservedFields(body, kind.unservedFields);
  const fields = parseFields(kind.schema, body);
  const model = resolveModel(fields.model, servedModelNames);
  const id = `${kind.idPrefix}-${randomUUID().replaceAll("-", "")}`;
  return { fields, head: { id, created: Math.floor(Date.now() / 1000), model }, paths: kind.paths(fields) };
}

/** Whether the chunks of a streamed answer give its usage. */
export function streamUsageOf({ stream_options: options }: CommonFields): StreamUsageOptions {
  return {
    includeUsage: options?.include_usage === true,
    continuousUsage: options?.continuous_usage_stats === true,
  };
}

/** The settings that limit requests. */
export type RequestConfig = Pick<Config, "maxLogprobs" | "defaultExtraArguments"> & {
  readonly engine: Pick<Config["engine"], "maxNumWaiting">;
};

/** The engine and tenant of a request. */
export interface RequestContext {
  readonly engine: Engine;
  readonly config: RequestConfig;
  /** See `AppEnvironment`. */
  readonly tenant: string;
  /** Arguments for logits processors. They override the service's, and the body overrides them. */
  readonly extraArguments?: ExtraArguments;
}

/** Throws HttpError 400 or EngineError `invalid_argument` for values out of range. */
export function createRequests<Fields extends CommonFields>(
  kind: GenerationKind<Fields>,
  { fields, head }: ParsedBody<Fields>,
  { engine, config, tenant, extraArguments = {} }: RequestContext,
): readonly GenerationRequest[] {
  const requests = kind.toRequests(head.id, fields, {
    maxLogprobs: config.maxLogprobs,
    tenant,
    samplingParams: {
      ...engine.modelInfo?.defaultSamplingParams,
      extraArgs: { ...config.defaultExtraArguments, ...extraArguments },
    },
  });
  if (engine.modelInfo !== null && requests.length > 1) {
    checkNumChoices(requests, engine.modelInfo.maxNumSequences + config.engine.maxNumWaiting);
  }
  return requests;
}

/** A request that can never fit is rejected for good, instead of with 429. */
function checkNumChoices(requests: readonly GenerationRequest[], maxNumChoices: number): void {
  const numChoices = requests.reduce((sum, request) => sum + (request.numChoices ?? 1), 0);
  if (numChoices <= maxNumChoices) return;
  throw new HttpError(
    400,
    "invalid_value",
    `prompt asks for ${numChoices} choices in ${requests.length} prompts; at most ${maxNumChoices} can run or wait at once. MAX_NUM_SEQS and MAX_NUM_WAITING set the limit.`,
    { parameter: "prompt" },
  );
}

/** A request without a model gets the first name. */
function resolveModel(model: string | null | undefined, served: readonly string[]): string {
  if (model === null || model === undefined) return served[0];
  if (served.includes(model)) return model;
  const shown = model.length > 100 ? `${model.slice(0, 100)}…` : model;
  throw new HttpError(404, "model_not_found", `The model \`${shown}\` does not exist.`, { parameter: "model" });
}
