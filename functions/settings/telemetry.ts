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
  protocol: setting(
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    oneOf(["http/protobuf", "http/json"]),
    "Form of the messages to the collector: http/protobuf or http/json.",
    { default: "http/protobuf" },
  ),
  timeoutMs: setting(
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    integer(1, 600_000, "milliseconds"),
    "Longest time of one message to the collector, in milliseconds.",
    { default: 10_000 },
  ),
  tracesExporter: setting("OTEL_TRACES_EXPORTER", oneOf(["otlp", "none"]), "none sends no traces.", {
    default: "otlp",
  }),
  metricsExporter: setting("OTEL_METRICS_EXPORTER", oneOf(["otlp", "none"]), "none sends no metrics.", {
    default: "otlp",
  }),
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

export interface TelemetryConfig {
  /** URL of the collector for each signal; null if it is not sent. */
  readonly traces: string | null;
  readonly metrics: string | null;
  readonly headers: Readonly<Record<string, string>>;
  readonly protocol: "http/protobuf" | "http/json";
  readonly timeoutMs: number;
  readonly serviceName: string;
  readonly resourceAttributes: Readonly<Record<string, string>>;
  readonly sampler: (typeof samplers)[number];
  readonly samplerRatio: number;
  readonly spanDelayMs: number;
  readonly metricIntervalMs: number;
}

interface GivenTelemetry extends Omit<TelemetryConfig, "traces" | "metrics" | "serviceName"> {
  readonly endpoint: string | null;
  readonly tracesEndpoint: string | null;
  readonly metricsEndpoint: string | null;
  readonly tracesExporter: "otlp" | "none";
  readonly metricsExporter: "otlp" | "none";
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
  isDisabled,
  serviceName,
  ...rest
}: GivenTelemetry): TelemetryConfig | null {
  const below = (path: string): string | null => endpoint && `${endpoint.replace(/\/+$/, "")}/v1/${path}`;
  const traces = tracesExporter === "otlp" ? (tracesEndpoint ?? below("traces")) : null;
  const metrics = metricsExporter === "otlp" ? (metricsEndpoint ?? below("metrics")) : null;
  if (isDisabled || (traces === null && metrics === null)) return null;
  return { ...rest, traces, metrics, serviceName: serviceName ?? rest.resourceAttributes["service.name"] ?? "fovea" };
}
