/** The metrics of /metrics for OpenTelemetry, so that each is measured once. */
import { ValueType } from "@opentelemetry/api";
import type { HrTime } from "@opentelemetry/api";
import { hrTime } from "@opentelemetry/core";
import type { InstrumentationScope } from "@opentelemetry/core";
import { emptyResource } from "@opentelemetry/resources";
import { AggregationTemporality, DataPointType } from "@opentelemetry/sdk-metrics";
import type { HistogramMetricData, MetricData, MetricProducer } from "@opentelemetry/sdk-metrics";

import type { MetricReading, Metrics } from "../metrics.ts";

/**
 * Histograms that OpenTelemetry's conventions for generative AI have too; they are sent under these names as well.
 *
 * @see https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/
 */
const conventional: Readonly<Record<string, { readonly name: string; readonly tokenType?: "input" | "output" }>> = {
  "vllm:e2e_request_latency_seconds": { name: "gen_ai.server.request.duration" },
  "vllm:time_to_first_token_seconds": { name: "gen_ai.server.time_to_first_token" },
  "vllm:inter_token_latency_seconds": { name: "gen_ai.server.time_per_output_token" },
  "vllm:request_prompt_tokens": { name: "gen_ai.client.token.usage", tokenType: "input" },
  "vllm:request_generation_tokens": { name: "gen_ai.client.token.usage", tokenType: "output" },
};

type Labels = Readonly<Record<string, string | number>>;

export function createMetricProducer(metrics: Pick<Metrics, "read">, scope: InstrumentationScope): MetricProducer {
  const startTime = hrTime();
  return {
    async collect() {
      const endTime = hrTime();
      const data = (await metrics.read()).flatMap((metric) => toMetricData(metric, startTime, endTime));
      return {
        resourceMetrics: { resource: emptyResource(), scopeMetrics: [{ scope, metrics: data }] },
        errors: [],
      };
    },
  };
}

function toMetricData(metric: MetricReading, startTime: HrTime, endTime: HrTime): MetricData[] {
  const { name, help, values } = metric;
  const descriptor = { name, description: help, unit: unitOf(name), valueType: ValueType.DOUBLE };
  const common = { descriptor, aggregationTemporality: AggregationTemporality.CUMULATIVE };
  if (metric.type === "histogram") return toHistograms(metric, common, startTime, endTime);
  const dataPoints = values.map(({ labels, value }) => ({ startTime, endTime, attributes: { ...labels }, value }));
  return metric.type === "counter"
    ? [{ ...common, dataPointType: DataPointType.SUM, dataPoints, isMonotonic: true }]
    : [{ ...common, dataPointType: DataPointType.GAUGE, dataPoints }];
}

function toHistograms(
  { name, values }: MetricReading,
  common: Pick<HistogramMetricData, "descriptor" | "aggregationTemporality">,
  startTime: HrTime,
  endTime: HrTime,
): HistogramMetricData[] {
  /** By labels without `le`. */
  const series = new Map<
    string,
    { readonly labels: Labels; readonly bounds: number[]; readonly sums: number[] } & Totals
  >();
  for (const { labels: given, value, metricName } of values) {
    const { le, ...labels } = given;
    const key = JSON.stringify(labels);
    let one = series.get(key);
    if (one === undefined) series.set(key, (one = { labels, bounds: [], sums: [], sum: 0, count: 0 }));
    if (metricName === `${name}_sum`) one.sum = value;
    else if (metricName === `${name}_count`) one.count = value;
    else if (typeof le === "number") {
      one.bounds.push(le);
      one.sums.push(value);
    }
  }
  const dataPoints = Array.from(series.values(), ({ labels, bounds, sums, sum, count }) => {
    const counts = [...sums, count].map((upTo, index) => upTo - (sums[index - 1] ?? 0));
    return {
      startTime,
      endTime,
      attributes: { ...labels },
      value: { buckets: { boundaries: bounds, counts }, sum, count },
    };
  });
  const histogram = { ...common, dataPointType: DataPointType.HISTOGRAM as const, dataPoints };
  const also = conventional[name];
  if (also === undefined) return [histogram];
  const renamed = dataPoints.map(({ attributes, value }) => ({
    startTime,
    endTime,
    value,
    attributes: {
      "gen_ai.provider.name": "fovea",
      "gen_ai.request.model": attributes.model_name,
      ...(also.tokenType && { "gen_ai.token.type": also.tokenType }),
    },
  }));
  const unit = also.tokenType === undefined ? "s" : "{token}";
  return [
    histogram,
    { ...histogram, descriptor: { ...common.descriptor, name: also.name, unit }, dataPoints: renamed },
  ];
}

interface Totals {
  sum: number;
  count: number;
}

function unitOf(name: string): string {
  if (/_seconds(_total)?$/.test(name)) return "s";
  return /_bytes(_total)?$/.test(name) ? "By" : "";
}
