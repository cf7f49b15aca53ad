/** A collector of OpenTelemetry: receives OTLP over HTTP as JSON and as protobuf. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { promisify } from "node:util";
import { gunzipSync } from "node:zlib";
import protobuf from "protobufjs";

/** The part of opentelemetry/proto/trace/v1/trace.proto that the tests read. */
const { root } = protobuf.parse(
  `syntax = "proto3";
  message Request { repeated ResourceSpans resource_spans = 1; }
  message ResourceSpans { repeated ScopeSpans scope_spans = 2; }
  message ScopeSpans { repeated Span spans = 2; }
  message Span { bytes trace_id = 1; bytes span_id = 2; bytes parent_span_id = 4; string name = 5; }`,
);

export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly name: string;
  /** Only of JSON. */
  readonly kind: number;
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly statusCode: number;
}

export interface ReceivedMetric {
  readonly name: string;
  readonly unit: string;
  readonly points: readonly { readonly attributes: Readonly<Record<string, unknown>>; readonly value: number }[];
}

export interface OtlpReceiver extends AsyncDisposable {
  readonly url: string;
  readonly spans: () => readonly ReceivedSpan[];
  /** Of the last message. */
  readonly metrics: () => readonly ReceivedMetric[];
  /** Attributes of the resource of the last message. */
  readonly resource: () => Readonly<Record<string, unknown>>;
  readonly headers: () => Readonly<Record<string, unknown>>;
  /** Connections that are open. */
  readonly numConnections: () => Promise<number>;
}

export async function startOtlpReceiver(): Promise<OtlpReceiver> {
  const spans: ReceivedSpan[] = [];
  let metrics: ReceivedMetric[] = [];
  let resource: Readonly<Record<string, unknown>> = {};
  let headers: Readonly<Record<string, unknown>> = {};
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const raw = Buffer.concat(chunks);
      const body = request.headers["content-encoding"] === "gzip" ? gunzipSync(raw) : raw;
      ({ headers } = request);
      const isJson = request.headers["content-type"] === "application/json";
      if (request.url === "/v1/traces") spans.push(...(isJson ? spansOfJson(body) : spansOfProtobuf(body)));
      if (request.url === "/v1/metrics" && isJson) metrics = metricsOfJson(body);
      if (isJson) resource = resourceOf(body);
      response.writeHead(200, { "content-type": String(request.headers["content-type"]) }).end(isJson ? "{}" : "");
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans: () => spans,
    metrics: () => metrics,
    resource: () => resource,
    headers: () => headers,
    numConnections: promisify(server.getConnections.bind(server)),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

interface JsonAttribute {
  readonly key: string;
  readonly value: JsonValue;
}

type JsonValue = Readonly<Record<string, unknown>> & {
  readonly arrayValue?: { readonly values: readonly JsonValue[] };
};

interface JsonSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly JsonAttribute[];
  readonly status?: { readonly code?: number };
}

function valueOf(value: JsonValue): unknown {
  if (value.arrayValue !== undefined) return value.arrayValue.values.map(valueOf);
  return Object.values(value)[0];
}

function attributesOf(attributes: readonly JsonAttribute[]): Readonly<Record<string, unknown>> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, valueOf(value)]));
}

const NANOSECONDS_PER_MS = 1_000_000;

function spansOfJson(body: Buffer): ReceivedSpan[] {
  const { resourceSpans } = JSON.parse(body.toString()) as {
    readonly resourceSpans: readonly { readonly scopeSpans: readonly { readonly spans: readonly JsonSpan[] }[] }[];
  };
  return resourceSpans
    .flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans))
    .map(
      ({ traceId, spanId, parentSpanId = "", name, kind, startTimeUnixNano, endTimeUnixNano, attributes, status }) => ({
        traceId,
        spanId,
        parentSpanId,
        name,
        kind,
        startMs: Number(startTimeUnixNano) / NANOSECONDS_PER_MS,
        endMs: Number(endTimeUnixNano) / NANOSECONDS_PER_MS,
        attributes: attributesOf(attributes),
        statusCode: status?.code ?? 0,
      }),
    );
}

function spansOfProtobuf(body: Buffer): ReceivedSpan[] {
  const message = root.lookupType("Request").decode(body) as unknown as {
    readonly resourceSpans: readonly {
      readonly scopeSpans: readonly {
        readonly spans: readonly Readonly<
          Record<"traceId" | "spanId" | "parentSpanId", Uint8Array> & { name: string }
        >[];
      }[];
    }[];
  };
  const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
  return message.resourceSpans
    .flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans))
    .map(({ traceId, spanId, parentSpanId, name }) => ({
      traceId: hex(traceId),
      spanId: hex(spanId),
      parentSpanId: hex(parentSpanId),
      name,
      kind: 0,
      startMs: 0,
      endMs: 0,
      attributes: {},
      statusCode: 0,
    }));
}

interface JsonPoint {
  readonly attributes: readonly JsonAttribute[];
  readonly asDouble?: number;
  readonly asInt?: string;
  /** Of a histogram. */
  readonly count?: number | string;
}

interface JsonMetric {
  readonly name: string;
  readonly unit: string;
  readonly sum?: { readonly dataPoints: readonly JsonPoint[] };
  readonly gauge?: { readonly dataPoints: readonly JsonPoint[] };
  readonly histogram?: { readonly dataPoints: readonly JsonPoint[] };
}

/** The value of a histogram's point is its count. */
function metricsOfJson(body: Buffer): ReceivedMetric[] {
  const { resourceMetrics } = JSON.parse(body.toString()) as {
    readonly resourceMetrics: readonly {
      readonly scopeMetrics: readonly { readonly metrics: readonly JsonMetric[] }[];
    }[];
  };
  return resourceMetrics
    .flatMap(({ scopeMetrics }) => scopeMetrics.flatMap((scope) => scope.metrics))
    .map(({ name, unit, sum, gauge, histogram }) => ({
      name,
      unit,
      points: (sum ?? gauge ?? histogram)!.dataPoints.map(({ attributes, asDouble, asInt, count }) => ({
        attributes: attributesOf(attributes),
        value: Number(asDouble ?? asInt ?? count),
      })),
    }));
}

function resourceOf(body: Buffer): Readonly<Record<string, unknown>> {
  const { resourceSpans, resourceMetrics } = JSON.parse(body.toString()) as Readonly<
    Record<string, readonly { readonly resource: { readonly attributes: readonly JsonAttribute[] } }[] | undefined>
  >;
  return attributesOf((resourceSpans ?? resourceMetrics)![0]!.resource.attributes);
}
