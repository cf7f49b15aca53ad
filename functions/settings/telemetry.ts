/**
 * Settings of OpenTelemetry, by its own names.
 *
 * @see https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
 */
import { setting } from "./setting.ts";
import { anyText, boolean, fraction, httpUrl, integer, keyValues, oneOf } from "./values.ts";

const samplers = [
  "always_on",
  "always_off",
  "traceidratio",
  "parentbased_always_on",
  "parentbased_always_off",
  "parentbased_traceidratio",
] as const;

const protocols = ["http/protobuf", "http/json"] as const;
type Protocol = (typeof protocols)[number];

export const telemetrySettings = {
  endpoint: setting(
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    httpUrl(),
    "URL of an OpenTelemetry collector (OTLP over HTTP), such as http://localhost:4318. Traces and metrics are sent there.",
  ),
  tracesEndpoint: setting("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", httpUrl(), "The whole URL for traces alone."),
  metricsEndpoint: setting("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", httpUrl(), "The whole URL for metrics alone."),
  headers: setting(
    "OTEL_EXPORTER_OTLP_HEADERS",
    keyValues(),
    "Headers for the collector: name=value pairs separated by commas, values percent-encoded.",
    { secret: true, unset: {} },
  ),
  tracesHeaders: setting(
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    keyValues(),
    "Headers for traces alone, in addition; those of the same name win.",
    { secret: true, unset: {} },
  ),
  metricsHeaders: setting("OTEL_EXPORTER_OTLP_METRICS_HEADERS", keyValues(), "The same for metrics.", {
    secret: true,
    unset: {},
  }),
  protocol: setting(
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    oneOf(protocols),
    "Form of the messages to the collector: http/protobuf or http/json.",
    { default: "http/protobuf" },
  ),
  tracesProtocol: setting("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", oneOf(protocols), "The form of traces alone."),
  metricsProtocol: setting("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", oneOf(protocols), "The form of metrics alone."),
  timeoutMs: setting(
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    integer(1, 600_000, "milliseconds"),
    "Longest time of one message to the collector, in milliseconds.",
    { default: 10_000 },
  ),
  tracesTimeoutMs: setting(
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    integer(1, 600_000, "milliseconds"),
    "The longest time of one message with traces.",
  ),
  metricsTimeoutMs: setting(
    "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT",
    integer(1, 600_000, "milliseconds"),
    "The longest time of one message with metrics.",
  ),
  tracesExporter: setting("OTEL_TRACES_EXPORTER", oneOf(["otlp", "none"]), "none sends no traces.", {
    default: "otlp",
  }),
  metricsExporter: setting("OTEL_METRICS_EXPORTER", oneOf(["otlp", "none"]), "none sends no metrics.", {
    default: "otlp",
  }),
  logsExporter: setting(
    "OTEL_LOGS_EXPORTER",
    anyText(),
    "Logs are written to standard output only: a value other than none or console is reported at the start.",
  ),
  logsProtocol: setting("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", anyText(), "Without effect, as logs are not sent."),
  propagators: setting(
    "OTEL_PROPAGATORS",
    anyText(),
    "Forms in which traces of callers are read: tracecontext is, others are reported at the start. none: every request starts a trace.",
    { default: "tracecontext,baggage" },
  ),
  serviceName: setting(
    "OTEL_SERVICE_NAME",
    anyText(),
    "service.name of traces and metrics. Default: that of OTEL_RESOURCE_ATTRIBUTES, or fovea.",
  ),
  resourceAttributes: setting(
    "OTEL_RESOURCE_ATTRIBUTES",
    keyValues(),
    "Attributes of all traces and metrics: name=value pairs separated by commas, values percent-encoded.",
    { unset: {} },
  ),
  sampler: setting("OTEL_TRACES_SAMPLER", oneOf(samplers), `Which traces are kept: ${samplers.join(", ")}.`, {
    default: "parentbased_always_on",
  }),
  samplerRatio: setting("OTEL_TRACES_SAMPLER_ARG", fraction(0, 1), "Share of the traces that traceidratio keeps.", {
    default: 1,
  }),
  spanDelayMs: setting(
    "OTEL_BSP_SCHEDULE_DELAY",
    integer(1, 600_000, "milliseconds"),
    "Milliseconds between two messages with traces.",
    { default: 5_000 },
  ),
  metricIntervalMs: setting(
    "OTEL_METRIC_EXPORT_INTERVAL",
    integer(100, 86_400_000, "milliseconds"),
    "Milliseconds between two messages with metrics.",
    { default: 60_000 },
  ),
  isDisabled: setting("OTEL_SDK_DISABLED", boolean(), "true turns OpenTelemetry off.", { default: false }),
};

/** How one signal is sent. */
export interface ExporterConfig {
  /** Of the collector. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly protocol: Protocol;
  readonly timeoutMs: number;
}

export interface TelemetryConfig {
  /** Null if none are sent. */
  readonly traces: ExporterConfig | null;
  readonly metrics: ExporterConfig | null;
  readonly serviceName: string;
  readonly resourceAttributes: Readonly<Record<string, string>>;
  readonly sampler: (typeof samplers)[number];
  readonly samplerRatio: number;
  readonly spanDelayMs: number;
  readonly metricIntervalMs: number;
  /** Whether traces of callers are continued. */
  readonly continuesTraces: boolean;
  /** Sentences about settings without effect. */
  readonly warnings: readonly string[];
}

interface GivenTelemetry extends Omit<
  TelemetryConfig,
  "traces" | "metrics" | "serviceName" | "continuesTraces" | "warnings"
> {
  readonly headers: ExporterConfig["headers"];
  readonly tracesHeaders: ExporterConfig["headers"];
  readonly metricsHeaders: ExporterConfig["headers"];
  readonly timeoutMs: number;
  readonly tracesTimeoutMs: number | null;
  readonly metricsTimeoutMs: number | null;
  readonly endpoint: string | null;
  readonly tracesEndpoint: string | null;
  readonly metricsEndpoint: string | null;
  readonly tracesExporter: "otlp" | "none";
  readonly metricsExporter: "otlp" | "none";
  readonly protocol: Protocol;
  readonly tracesProtocol: Protocol | null;
  readonly metricsProtocol: Protocol | null;
  readonly logsExporter: string | null;
  readonly logsProtocol: string | null;
  readonly propagators: string;
  readonly isDisabled: boolean;
  readonly serviceName: string | null;
}

/** Null if nothing is sent. */
export function toTelemetryConfig({
  endpoint,
  tracesEndpoint,
  metricsEndpoint,
  tracesExporter,
  metricsExporter,
  headers,
  tracesHeaders,
  metricsHeaders,
  protocol,
  tracesProtocol,
  metricsProtocol,
  timeoutMs,
  tracesTimeoutMs,
  metricsTimeoutMs,
  logsExporter,
  logsProtocol,
  propagators,
  isDisabled,
  serviceName,
  ...rest
}: GivenTelemetry): TelemetryConfig | null {
  const below = (path: string): string | null =>
    endpoint === null ? null : `${endpoint.replace(/\/+$/, "")}/v1/${path}`;
  const traces = tracesExporter === "otlp" ? (tracesEndpoint ?? below("traces")) : null;
  const metrics = metricsExporter === "otlp" ? (metricsEndpoint ?? below("metrics")) : null;
  const propagatorNames = propagators.split(/[\s,]+/).filter((name) => name !== "");
  if (isDisabled || (traces === null && metrics === null)) return null;
  return {
    ...rest,
    traces:
      traces === null
        ? null
        : {
            url: traces,
            headers: { ...headers, ...tracesHeaders },
            protocol: tracesProtocol ?? protocol,
            timeoutMs: tracesTimeoutMs ?? timeoutMs,
          },
    metrics:
      metrics === null
        ? null
        : {
            url: metrics,
            headers: { ...headers, ...metricsHeaders },
            protocol: metricsProtocol ?? protocol,
            timeoutMs: metricsTimeoutMs ?? timeoutMs,
          },
    continuesTraces: propagatorNames.includes("tracecontext"),
    warnings: [...logWarnings(logsExporter, logsProtocol), ...propagatorWarnings(propagatorNames)],
    serviceName: serviceName ?? rest.resourceAttributes["service.name"] ?? "fovea",
  };
}

/** Logs go to standard output, so a request to write them there or nowhere is no surprise. */
function logWarnings(exporter: string | null, protocol: string | null): readonly string[] {
  if (exporter === "none" || exporter === "console" || (exporter === null && protocol === null)) return [];
  const given =
    exporter === null
      ? `OTEL_EXPORTER_OTLP_LOGS_PROTOCOL is ${protocol?.slice(0, 100)}`
      : `OTEL_LOGS_EXPORTER is ${exporter.slice(0, 100)}`;
  return [`${given}, but logs are not sent over OpenTelemetry: collect them from standard output.`];
}

/** Baggage would only be passed on to services that Fovea calls, and it calls none in a trace. */
const servedPropagators = new Set(["tracecontext", "baggage", "none"]);

function propagatorWarnings(propagators: readonly string[]): readonly string[] {
  const others = propagators.filter((name) => !servedPropagators.has(name));
  if (others.length === 0) return [];
  return [
    `OTEL_PROPAGATORS has ${others.join(", ").slice(0, 100)}, but callers' traces are read from traceparent and tracestate (tracecontext) only.`,
  ];
}
