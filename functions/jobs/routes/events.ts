/** POST /events: jobs as pushed events, which are answered when the job is done and its result is delivered. */
import type { Context, Handler } from "hono";

import type { AppDependencies } from "../../app-dependencies.ts";
import { HttpError } from "../../http/errors.ts";
import { readJsonObject } from "../../http/json-body.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { readTraceContext } from "../../telemetry/trace-context.ts";
import type { TraceContext } from "../../telemetry/trace-context.ts";
import { resultEventType } from "../job-result.ts";
import type { EventsDependencies } from "../push/events-dependencies.ts";
import { readEvent } from "../push/read-event.ts";
import type { PushedEvent } from "../push/read-event.ts";
import { RecentAnswers } from "../push/recent-answers.ts";
import type { RecentAnswer } from "../push/recent-answers.ts";

/**
 * 200: the job is done, or refused for good and its refusal delivered. 4xx: refused for good. 429 and 503: send it again.
 * The job goes on when its sender does not wait: the next delivery gets the answer of the first.
 */
export function eventsRoute(
  { service, bodies, config }: AppDependencies,
  { source, checkSender, hasSinks }: EventsDependencies,
): Handler<AppEnvironment> {
  const recent = new RecentAnswers();

  async function run(event: PushedEvent, traceContext: TraceContext | null): Promise<RecentAnswer> {
    const { jobId: id, message: body } = event;
    // A delivery that found no room counts for the sender as well, so the sender alone limits the number.
    const outcome = await source.push({ id, body, numDeliveries: 1, traceContext });
    if (outcome === null) throw again(429, "too_many_jobs", "Too many pushed jobs are waiting.", 5_000);
    if (outcome.kind === "released") {
      throw again(503, "job_released", "The job has no result yet; send it again.", outcome.delayMs);
    }
    const status = outcome.kind === "completed" || isDelivered(event) ? 200 : 400;
    const answer = { status, text: outcome.result.text };
    recent.add(id, answer);
    return answer;
  }

  /** Pub/Sub sends a message again until it gets 2xx. Without sinks its dead letters are the only place for a refusal. */
  function isDelivered({ kind }: PushedEvent): boolean {
    return kind === "pubsub" && hasSinks;
  }

  return async function receiveEvent(c) {
    await checkSender(c.req.raw.headers);
    service.checkRoom();
    // In binary mode, CloudEvents' SDK for Python sends no content type. No web page knows what the sender is checked by.
    const body = await readJsonObject(c.req.raw, config.maxBodyBytes, bodies, { acceptsUntyped: true });
    const event = readEvent(c.req.raw.headers, body);
    // The answer to an event may come back from a broker.
    if (event.type === resultEventType) return c.body(null, 204);
    Object.assign(c.get("logFields"), { id: event.jobId.slice(0, 200), event: event.kind });
    const { status, text } = recent.get(event.jobId) ?? (await run(event, contextOf(c)));
    return c.body(text, status as 200 | 400, {
      "Content-Type": "application/json",
      ...(event.kind === "cloudevent" && status === 200 && replyAttributes(event)),
    });
  };
}

/** The event's context comes before the request's, which may be a broker's. */
function contextOf(c: Context<AppEnvironment>): TraceContext | null {
  return (
    readTraceContext((name) => c.req.header(`ce-${name}`)) ??
    c.get("span")?.context ??
    readTraceContext((name) => c.req.header(name))
  );
}

/** The answer is a CloudEvent in binary mode, which Knative's brokers pass on. */
function replyAttributes({ jobId }: PushedEvent): Record<string, string> {
  const id = jobId.toWellFormed().replace(/[^\x21\x23\x24\x26-\x7e]/gu, (character) => encodeURIComponent(character));
  return { "ce-specversion": "1.0", "ce-id": id, "ce-source": "/events", "ce-type": resultEventType };
}

function again(status: number, code: string, message: string, delayMs: number): HttpError {
  const headers = { "Retry-After": String(Math.max(1, Math.ceil(delayMs / 1000))) };
  return new HttpError(status, code, message, { headers });
}
