/** Bodies of chat and text completions inside the envelopes of platforms. */
import type { Context } from "hono";
import { z } from "zod";

import { epochMs } from "../../../engine/index.ts";
import type { AppDependencies } from "../../app-dependencies.ts";
import { chatCompletionKind } from "../../generation/chat-completion-kind.ts";
import { completionFormOf } from "../../generation/completion-form.ts";
import { completionKind } from "../../generation/completion-kind.ts";
import { answeringModelOf, parseBody, streamUsageOf } from "../../generation/generation-kind.ts";
import type { CommonFields, GenerationKind, ParsedBody } from "../../generation/generation-kind.ts";
import { HttpError, toErrorAnswer } from "../../http/errors.ts";
import { countsOf } from "../../http/request-trace.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import type { RequestPaths } from "../../http/wire-parameter.ts";
import type { Admission } from "../../service.ts";
import { addTo, startGenerations } from "../generation-route.ts";

/** More than a completion has. They are copied into every body, so a long list would block all other requests. */
const MAX_COMMON_FIELDS = 128;

/** Fields that every body of a list gets, unless it has its own. */
export const commonFields = z
  .looseObject({}, "must be an object")
  .refine((fields) => Object.keys(fields).length <= MAX_COMMON_FIELDS, {
    error: ({ input }) => `can have at most ${MAX_COMMON_FIELDS} fields, not ${Object.keys(input as object).length}`,
  })
  .nullish();

export interface Envelope {
  readonly body: object;
  /** Path of the body in the request, for errors: `instances[1]`. */
  readonly path: string;
  /** Its abort ends the work. */
  readonly signal: AbortSignal;
}

/** A body with valid fields. Each call computes an answer and takes one place of the service. */
export interface EnvelopedBody {
  answer(): Promise<object>;
  /** OpenAI's chunks. */
  chunks(): AsyncGenerator<object>;
}

/** Throws HttpError with the path of the field in the whole request. */
export function openEnvelope(
  c: Context<AppEnvironment>,
  envelope: Envelope,
  dependencies: AppDependencies,
): EnvelopedBody {
  const { body, path } = envelope;
  if ("stream" in body && body.stream === true) {
    throw invalid(`${path}.stream`, "must be false here; stream by the route of the body itself");
  }
  switch (completionFormOf(body)) {
    case "chat":
      return open(chatCompletionKind, c, envelope, dependencies);
    case "text":
      return open(completionKind, c, envelope, dependencies);
    case null:
      throw invalid(path, "must have messages (a chat completion) or prompt (a text completion)");
  }
}

/**
 * The answers of all bodies, which are computed together. If one fails, all end.
 *
 * @param startMs The time at which the request began to be read, since the epoch.
 */
export async function answerAll(
  c: Context<AppEnvironment>,
  bodies: readonly Pick<Envelope, "body" | "path">[],
  startMs: number,
  dependencies: AppDependencies,
): Promise<object[]> {
  const failed = new AbortController();
  const signal = AbortSignal.any([c.req.raw.signal, failed.signal]);
  const opened = bodies.map((body) => openEnvelope(c, { ...body, signal }, dependencies));
  c.get("span")?.addStage({ name: "parse", startMs, endMs: epochMs() });
  try {
    return await Promise.all(opened.map((body) => body.answer()));
  } catch (error) {
    failed.abort();
    throw error;
  }
}

function open<Fields extends CommonFields>(
  kind: GenerationKind<Fields>,
  c: Context<AppEnvironment>,
  { body, path, signal }: Envelope,
  { service, metrics, config }: AppDependencies,
): EnvelopedBody {
  const parsed = locating(path, undefined, () => parseBody(kind, body, config));
  const { fields, head, paths } = parsed;
  const start = (admission: Admission) => {
    const generations = startGenerations(c, kind, parsed, admission, { metrics, config });
    logBody(c, parsed);
    return { generations, model: answeringModelOf({ engine: admission.engine, config }) };
  };
  return {
    async answer() {
      const admission = service.admit(signal);
      try {
        const { generations, model } = start(admission);
        return await kind.toAnswer(head, generations, fields, model);
      } catch (error) {
        throw located(error, path, paths);
      } finally {
        admission.release();
      }
    },
    async *chunks() {
      const admission = service.admit(signal);
      try {
        const { generations, model } = start(admission);
        const describeError = (error: unknown) => toErrorAnswer(error, c.get("requestId"), paths).body;
        yield* kind.toChunks(head, generations, streamUsageOf(fields), fields, model, describeError);
      } catch (error) {
        throw located(error, path, paths);
      } finally {
        admission.release();
      }
    },
  };
}

/** Adds up the bodies of a request. */
function logBody(c: Context<AppEnvironment>, { head, paths }: ParsedBody<CommonFields>): void {
  const fields = c.get("logFields");
  fields.model = head.model;
  for (const [name, count] of Object.entries(countsOf(paths))) addTo(fields, name, count);
  addTo(fields, "bodies", 1);
  // Answers of several bodies have an id each.
  fields.id = fields.bodies === 1 ? head.id : undefined;
}

function locating<Value>(path: string, paths: RequestPaths | undefined, run: () => Value): Value {
  try {
    return run();
  } catch (error) {
    throw located(error, path, paths);
  }
}

/** Puts the path of the body before the path of its field. Errors that say nothing about the body stay as they are. */
function located(error: unknown, path: string, paths: RequestPaths | undefined): unknown {
  const { status, headers, body } = toErrorAnswer(error, "", paths);
  if (status !== 400 && status !== 404 && status !== 422) return error;
  const { message, code, param } = body.error;
  const parameter = param === null ? path : `${path}.${param}`;
  return new HttpError(status, code, `${path}: ${message}`, { parameter, headers, cause: error });
}

function invalid(parameter: string, rule: string): HttpError {
  return new HttpError(400, "invalid_value", `${parameter} ${rule}.`, { parameter });
}
