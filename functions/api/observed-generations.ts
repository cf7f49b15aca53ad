/** Starts the generations of a body, with what the log, the metrics and the trace of its request tell about them. */
import type { Context } from "hono";

import type { AppDependencies } from "../app-dependencies.ts";
import { createRequests, maxRunningOf } from "../generation/generation-kind.ts";
import type { CommonFields, GenerationKind, ParsedBody } from "../generation/generation-kind.ts";
import { runGenerations } from "../generation/generations.ts";
import type { Generation } from "../generation/generations.ts";
import type { AppEnvironment } from "../http/request-trace.ts";
import type { Metrics } from "../metrics.ts";
import type { Admission } from "../service.ts";
import { requestAttributes, traced } from "../telemetry/generation-attributes.ts";

/**
 * Adds the figures of the body to those of other bodies of the same request.
 *
 * @throws HttpError 400 or EngineError `invalid_argument` for values out of range.
 */
export function startGenerations<Fields extends CommonFields>(
  c: Context<AppEnvironment>,
  kind: GenerationKind<Fields>,
  parsed: ParsedBody<Fields>,
  admission: Admission,
  { metrics, config }: Pick<AppDependencies, "metrics" | "config">,
): AsyncGenerator<Generation> {
  const requests = createRequests(kind, parsed, { engine: admission.engine, config, tenant: c.get("tenant") });
  metrics.addMedia(parsed.paths);
  const span = c.get("span");
  if (span !== undefined) span.setAttributes(requestAttributes(kind, parsed.head.model, requests));
  const observed = span === undefined ? requests : traced(requests, span);
  return runGenerations(admission, observed, withLog(metrics, c.get("logFields")), maxRunningOf(kind, admission));
}

/** Metrics that also add a sequence's figures to the request's log line. */
function withLog(metrics: Metrics, logFields: Record<string, unknown>): Metrics {
  return {
    ...metrics,
    observeTimeToFirstToken(seconds) {
      logFields.timeToFirstTokenMs ??= Math.round(seconds * 1000);
      metrics.observeTimeToFirstToken(seconds);
    },
    observeSequence(figures, seconds) {
      if (figures.index === 0) addTo(logFields, "promptTokens", figures.numPromptTokens);
      addTo(logFields, "completionTokens", figures.numOutputTokens);
      logFields.finishReason = figures.finishReason;
      metrics.observeSequence(figures, seconds);
    },
  };
}

/** Adds a count to those of earlier bodies and sequences of the request. */
export function addTo(logFields: Record<string, unknown>, name: string, count: number): void {
  logFields[name] = Number(logFields[name] ?? 0) + count;
}
