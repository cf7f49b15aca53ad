/** Traces and metrics by OpenTelemetry's SDK, sent over OTLP. Imported only if the settings name a collector. */
import { setTimeout as sleep } from "node:timers/promises";
import { DiagLogLevel, diag, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace, TraceFlags } from "@opentelemetry/api";
import type { Attributes, Span, TextMapGetter, Tracer } from "@opentelemetry/api";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { defaultResource, resourceFromAttributes } from "@opentelemetry/resources";
import type { Resource } from "@opentelemetry/resources";
import { MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import type { Sampler } from "@opentelemetry/sdk-trace";

import { epochMs, randomHex, randomUuid } from "../../engine/index.ts";
import type { Logger } from "../logger.ts";
import type { Metrics } from "../metrics.ts";
import { readVersion } from "../package-version.ts";
import type { TelemetryConfig } from "../settings/telemetry.ts";
import { ExporterConnections } from "./exporter-connections.ts";
import { createMetricProducer } from "./metric-producer.ts";
import type { RequestSpan, SpanAttributes, SpanStart, Stage, Telemetry } from "./telemetry.ts";
import type { TraceContext } from "./trace-context.ts";

const kinds = { server: SpanKind.SERVER, consumer: SpanKind.CONSUMER } as const;

const getter: TextMapGetter<TraceContext> = {
  keys: (carrier) => Object.keys(carrier),
  get: (carrier, key) => carrier[key as keyof TraceContext],
};

/** One line in the log for this many failed exports at most. */
const REPORT_INTERVAL_MS = 60_000;

/**
 * Time for the last messages when the process ends, because platforms kill it some seconds after its requests, and before
 * a snapshot.
 */
const LAST_EXPORT_MS = 3_000;

export async function createOpenTelemetry(
  config: TelemetryConfig,
  metrics: Pick<Metrics, "read">,
  logger: Logger,
): Promise<Telemetry> {
  for (const warning of config.warnings) logger.warn(warning);
  reportProblems(config, logger);
  const version = readVersion();
  const scope = { name: "fovea", version };
  const propagator = new W3CTraceContextPropagator();
  const producer = createMetricProducer(metrics, scope);
  let tracer: Tracer | null = null;
  let providers: readonly (TracerProvider | MeterProvider)[] = [];
  let connections = new ExporterConnections();
  const resume = async (): Promise<void> => {
    const resource = createResource(config, version);
    connections = new ExporterConnections();
    const tracerProvider = await createTracerProvider(config, resource, connections);
    const meterProvider = await createMeterProvider(config, resource, producer, connections);
    tracer = tracerProvider?.getTracer(scope.name, version) ?? null;
    providers = [tracerProvider, meterProvider].filter((provider) => provider !== null);
  };
  /** A collector that is down must hold up nothing; the SDK has reported it. */
  const suspend = async (): Promise<void> => {
    const closing = providers;
    tracer = null;
    providers = [];
    const flushed = Promise.allSettled(closing.map((provider) => provider.shutdown()));
    await Promise.race([flushed, sleep(LAST_EXPORT_MS, undefined, { ref: false })]);
    connections.close();
  };
  await resume();
  return {
    startSpan({ name, kind, parent, attributes }: SpanStart): RequestSpan {
      const context =
        parent === null || !config.continuesTraces ? ROOT_CONTEXT : propagator.extract(ROOT_CONTEXT, parent, getter);
      // The clock of stages stands still while the machine is suspended.
      const skewMs = Date.now() - epochMs();
      const now = (): number => epochMs() + skewMs;
      const options = { kind: kinds[kind], attributes: toAttributes(attributes), startTime: now() };
      const span = tracer?.startSpan(name, options, context) ?? trace.wrapSpanContext(emptyContext);
      const ofSpan = trace.setSpan(context, span);
      return {
        ...identityOf(span),
        setName: (changed) => void span.updateName(changed),
        setAttributes: (added) => void span.setAttributes(toAttributes(added)),
        addStage({ name: stageName, startMs, endMs, attributes: ofStage = {}, hasFailed }: Stage) {
          const child = tracer?.startSpan(stageName, { startTime: startMs + skewMs, attributes: ofStage }, ofSpan);
          if (hasFailed === true) child?.setStatus({ code: SpanStatusCode.ERROR });
          child?.end(endMs + skewMs);
        },
        end(errorType) {
          if (errorType !== null) {
            span.setAttribute("error.type", errorType);
            span.setStatus({ code: SpanStatusCode.ERROR });
          }
          span.end(now());
        },
      };
    },
    suspend,
    resume,
    async close() {
      await suspend();
      diag.disable();
    },
  };
}

/**
 * Replicas must differ, because their metrics have the same names: without an id of its own, each would overwrite the
 * others' sums. So must processes that are restored from one snapshot, hence a new id for each `resume`.
 */
function createResource({ serviceName, resourceAttributes }: TelemetryConfig, version: string): Resource {
  return defaultResource().merge(
    resourceFromAttributes({
      "service.instance.id": randomUuid(),
      "service.version": version,
      ...resourceAttributes,
      "service.name": serviceName,
    }),
  );
}

/** In place of the SDK's, whose ids would be the same in all processes that are restored from one snapshot. */
const idGenerator = { generateTraceId: () => randomHex(16), generateSpanId: () => randomHex(8) };

const emptyContext = { traceId: "0".repeat(32), spanId: "0".repeat(16), traceFlags: TraceFlags.NONE };

function identityOf(span: Span): Pick<RequestSpan, "traceId" | "context"> {
  const { traceId, spanId, traceFlags, traceState } = span.spanContext();
  const flags = traceFlags.toString(16).padStart(2, "0");
  const tracestate = traceState?.serialize();
  return { traceId, context: { traceparent: `00-${traceId}-${spanId}-${flags}`, ...(tracestate && { tracestate }) } };
}

async function createTracerProvider(
  { traces, sampler, samplerRatio, spanDelayMs }: TelemetryConfig,
  resource: Resource,
  { createAgent }: ExporterConnections,
): Promise<TracerProvider | null> {
  if (traces === null) return null;
  const { OTLPTraceExporter } =
    traces.protocol === "http/json"
      ? await import("@opentelemetry/exporter-trace-otlp-http")
      : await import("@opentelemetry/exporter-trace-otlp-proto");
  const exporter = new OTLPTraceExporter({
    url: traces.url,
    headers: { ...traces.headers },
    timeoutMillis: traces.timeoutMs,
    httpAgentOptions: createAgent,
  });
  return new TracerProvider({
    resource,
    sampler: createSampler(sampler, samplerRatio),
    idGenerator,
    spanProcessors: [new BatchSpanProcessor({ exporter, scheduledDelayMillis: spanDelayMs })],
  });
}

async function createMeterProvider(
  { metrics, metricIntervalMs }: TelemetryConfig,
  resource: Resource,
  producer: ReturnType<typeof createMetricProducer>,
  { createAgent }: ExporterConnections,
): Promise<MeterProvider | null> {
  if (metrics === null) return null;
  const { OTLPMetricExporter } =
    metrics.protocol === "http/json"
      ? await import("@opentelemetry/exporter-metrics-otlp-http")
      : await import("@opentelemetry/exporter-metrics-otlp-proto");
  const exporter = new OTLPMetricExporter({
    url: metrics.url,
    headers: { ...metrics.headers },
    timeoutMillis: metrics.timeoutMs,
    httpAgentOptions: createAgent,
  });
  const reader = new PeriodicExportingMetricReader({
    exporter,
    exportIntervalMillis: metricIntervalMs,
    exportTimeoutMillis: Math.min(metrics.timeoutMs, metricIntervalMs),
    metricProducers: [producer],
  });
  return new MeterProvider({ resource, readers: [reader] });
}

function createSampler(name: TelemetryConfig["sampler"], ratio: number): Sampler {
  const samplers: Readonly<Record<string, () => Sampler>> = {
    always_on: () => new AlwaysOnSampler(),
    always_off: () => new AlwaysOffSampler(),
    traceidratio: () => new TraceIdRatioBasedSampler(ratio),
  };
  const root = samplers[name.replace("parentbased_", "")]!();
  return name.startsWith("parentbased_") ? new ParentBasedSampler({ root }) : root;
}

function toAttributes(attributes: SpanAttributes): Attributes {
  return Object.fromEntries(
    Object.entries(attributes).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, typeof value === "object" ? [...value] : value]],
    ),
  );
}

/** Errors of the SDK, such as those of a collector that does not answer, become lines of the log. */
function reportProblems({ traces, metrics }: TelemetryConfig, logger: Logger): void {
  // Without what may be a secret in their paths.
  const collectors = [traces, metrics].flatMap((exporter) => (exporter === null ? [] : [new URL(exporter.url).origin]));
  let reportedMs = Number.NEGATIVE_INFINITY;
  const report = (message: string, ...details: readonly unknown[]): void => {
    if (performance.now() - reportedMs < REPORT_INTERVAL_MS) return;
    reportedMs = performance.now();
    const reason = [message, ...details].map(String).join(" ").slice(0, 1000);
    logger.warn("OpenTelemetry has a problem.", { collectors: [...new Set(collectors)], reason });
  };
  const ignore = (): void => {};
  const sink = { error: report, warn: report, info: ignore, debug: ignore, verbose: ignore };
  diag.setLogger(sink, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
}
