/** The kinds of requests that generate text, and the conversion of their bodies to engine requests. */
import type { z } from "zod";

import { randomUuid } from "../../engine/index.ts";
import type { Engine, EngineConfig, ExtraArguments, GenerationRequest, SamplingParams } from "../../engine/index.ts";
import type { ErrorBody } from "../http/error-body.ts";
import { HttpError } from "../http/errors.ts";
import type { EventFormat } from "../http/sse.ts";
import type { RequestPaths } from "../http/wire-parameter.ts";
import type { Config } from "../settings/config.ts";
import type { InlineImages } from "../settings/images.ts";
import type { AnswerHead, StreamUsageOptions } from "./answer-options.ts";
import type { Generation } from "./generations.ts";
import { modelFormatsOf } from "./parsed-output/model-formats.ts";
import type { ConfiguredFormats, ModelFormats } from "./parsed-output/model-formats.ts";
import type { RequestDefaults } from "./request-options.ts";
import { parseFields } from "./schemas/parse-fields.ts";
import { refuseUnservedFields, withStructuredOutputs } from "./schemas/unserved-fields.ts";
import type { UnservedFields } from "./schemas/unserved-fields.ts";

export interface CommonFields {
  readonly model?: string | null | undefined;
  readonly request_id?: string | null | undefined;
  readonly priority?: number | null | undefined;
  readonly stream?: boolean | null | undefined;
  readonly stream_options?:
    | {
        readonly include_usage?: boolean | null | undefined;
        readonly continuous_usage_stats?: boolean | null | undefined;
      }
    | null
    | undefined;
}

/** One kind of prompts: the fields of its bodies. */
export interface PromptKind<Fields extends CommonFields> {
  /** Prefix of the ids of answers: `chatcmpl-`. */
  readonly idPrefix: string;
  readonly schema: z.ZodType<Fields>;
  readonly unservedFields: UnservedFields;
  /**
   * Whether the prompts of a body wait for one another, so that it may have more of them than can run or wait at once.
   * Default false.
   */
  readonly runsInTurns?: boolean;
  toRequests(requestId: string, fields: Fields, defaults: RequestDefaults): readonly GenerationRequest[];
  paths(fields: Fields, inlineImages: InlineImages): RequestPaths;
}

/** What an answer depends on besides its request. */
export interface AnsweringModel extends ModelFormats {
  /** Of the checkpoint. */
  readonly defaultSamplingParams: Partial<SamplingParams>;
}

/** One kind of request: its fields and its answers. */
export interface GenerationKind<Fields extends CommonFields> extends PromptKind<Fields> {
  toAnswer(
    head: AnswerHead,
    generations: AsyncIterable<Generation>,
    fields: Fields,
    model: AnsweringModel,
  ): Promise<object>;
  toChunks(
    head: AnswerHead,
    generations: AsyncIterable<Generation>,
    usage: StreamUsageOptions,
    fields: Fields,
    model: AnsweringModel,
    describeError: (error: unknown) => ErrorBody,
  ): AsyncGenerator<object>;
  /** Default: OpenAI's chunks. */
  readonly eventFormat?: EventFormat;
  /** Names the fields of the request that the answer leaves out. Default: none. */
  warnings?(fields: Fields, formats: ModelFormats): readonly string[];
}

/** A body whose fields have valid types. */
export interface ParsedBody<Fields> {
  readonly fields: Fields;
  readonly head: AnswerHead;
  /** For the engine. Not the client's, because two clients may choose the same id. */
  readonly requestId: string;
  /** For errors that name a field. */
  readonly paths: RequestPaths;
}

/** Throws HttpError 400 that names the field, or 404 for an unknown model. */
export function parseBody<Fields extends CommonFields>(
  kind: PromptKind<Fields>,
  body: object,
  { servedModelNames, inlineImages }: Pick<Config, "servedModelNames" | "inlineImages">,
): ParsedBody<Fields> {
  refuseUnservedFields(body, kind.unservedFields);
  const fields = parseFields(kind.schema, withStructuredOutputs(body));
  const model = resolveModel(fields.model, servedModelNames);
  const requestId = `${kind.idPrefix}${randomUuid().replaceAll("-", "")}`;
  const id = typeof fields.request_id === "string" ? `${kind.idPrefix}${fields.request_id}` : requestId;
  const created = Math.floor(Date.now() / 1000);
  return { fields, head: { id, created, model }, requestId, paths: kind.paths(fields, inlineImages) };
}

/** Whether the chunks of a streamed answer give its usage. */
export function streamUsageOf({ stream_options: options }: CommonFields): StreamUsageOptions {
  return {
    includeUsage: options?.include_usage === true,
    continuousUsage: options?.continuous_usage_stats === true,
  };
}

/** The settings that limit requests. */
export type RequestConfig = Pick<
  Config,
  "maxLogprobs" | "defaultExtraArguments" | "inlineImages" | "schedulingPolicy" | "videoSampling"
> & {
  readonly engine: Pick<Config["engine"], "maxNumWaiting" | "videoLimits"> &
    Pick<EngineConfig, "loraModules" | "runner">;
  /** Default: the formats that the chat template shows. */
  readonly outputFormats?: ConfiguredFormats;
};

/** The formats of the output of a request's model, and its defaults. */
export function answeringModelOf({ engine, config }: Pick<RequestContext, "engine" | "config">): AnsweringModel {
  const defaultSamplingParams = engine.modelInfo?.defaultSamplingParams ?? {};
  return { ...modelFormatsOf(engine, config.outputFormats), defaultSamplingParams };
}

/** The engine and tenant of a request. */
export interface RequestContext {
  readonly engine: Engine;
  readonly config: RequestConfig;
  /** See `AppEnvironment`. */
  readonly tenant: string;
  /** Arguments for logits processors. They override the service's, and the body overrides them. */
  readonly extraArguments?: ExtraArguments;
  /** Of requests without one. Default 0. */
  readonly priority?: number;
}

/** Throws HttpError 400 or EngineError `invalid_argument` for values out of range. */
export function createRequests<Fields extends CommonFields>(
  kind: PromptKind<Fields>,
  { fields, head, requestId }: ParsedBody<Fields>,
  { engine, config, tenant, extraArguments = {}, priority = 0 }: RequestContext,
): readonly GenerationRequest[] {
  checkPriority(fields.priority ?? 0, config);
  const ofModel = kind.toRequests(requestId, fields, {
    maxLogprobs: config.maxLogprobs,
    inlineImages: config.inlineImages,
    videoSampling: config.videoSampling,
    maxVideoFrames: config.engine.videoLimits.maxVideoFrames,
    tenant,
    formats: modelFormatsOf(engine, config.outputFormats),
    task: engine.modelInfo?.task ?? null,
    embeddingSize: engine.modelInfo?.embeddingSize ?? null,
    priority: config.schedulingPolicy === "priority" ? (fields.priority ?? priority) : priority,
    samplingParams: {
      ...engine.modelInfo?.defaultSamplingParams,
      extraArgs: { ...config.defaultExtraArguments, ...extraArguments },
    },
  });
  const adapter = config.engine.loraModules?.find(({ name }) => name === head.model)?.name;
  const requests = adapter === undefined ? ofModel : ofModel.map((request) => withAdapter(request, adapter));
  if (engine.modelInfo !== null && requests.length > 1 && kind.runsInTurns !== true) {
    checkNumChoices(requests, engine.modelInfo.maxNumSequences + config.engine.maxNumWaiting);
  }
  return requests;
}

/** How many requests of a body run at the same time. */
export function maxRunningOf(
  { runsInTurns = false }: Pick<PromptKind<CommonFields>, "runsInTurns">,
  { engine }: Pick<RequestContext, "engine">,
): number {
  return runsInTurns ? (engine.modelInfo?.maxNumSequences ?? 1) : Infinity;
}

function withAdapter(request: GenerationRequest, adapter: string): GenerationRequest {
  return { ...request, adapter };
}

/** As in vLLM. Otherwise any client could overtake all others. */
function checkPriority(priority: number, { schedulingPolicy }: RequestConfig): void {
  if (priority === 0 || schedulingPolicy === "priority") return;
  throw new HttpError(
    400,
    "invalid_value",
    `priority is ${priority}, but this service runs requests in order of arrival. Leave it out, or set SCHEDULING_POLICY=priority.`,
    { parameter: "priority" },
  );
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

/**
 * A request without a model, or with an empty one, gets the first name, as in vLLM.
 *
 * @throws HttpError 404 for an unknown name.
 */
export function resolveModel(model: string | null | undefined, served: readonly string[]): string {
  if (model === null || model === undefined || model === "") return served[0]!;
  if (served.includes(model)) return model;
  throw modelNotFound(model, served);
}

/** Names a model that can be asked instead. */
export function modelNotFound(model: string, [name = ""]: readonly string[]): HttpError {
  const shown = model.length > 100 ? `${model.slice(0, 100)}…` : model;
  const message = `The model \`${shown}\` does not exist. This service has \`${name}\`; GET /v1/models lists all names.`;
  return new HttpError(404, "model_not_found", message, { parameter: "model" });
}
