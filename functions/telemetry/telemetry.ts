/** Traces as the service sees them. The implementation is imported only if the settings ask for it. */
import type { RequestStage } from "../../engine/index.ts";
import type { TraceContext } from "./trace-context.ts";

export type SpanAttributes = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;

export interface SpanStart {
  readonly name: string;
  /** `server` for requests, `consumer` for jobs. */
  readonly kind: "server" | "consumer";
  /** Null for the first span of a trace. */
  readonly parent: TraceContext | null;
  readonly attributes: SpanAttributes;
}

/**
 * A part of a request: one of the engine's; `hold`, the wait for the model to load; or `parse`, the body from its first
 * byte to its checked fields.
 */
export type Stage = Omit<RequestStage, "name"> & { readonly name: RequestStage["name"] | "hold" | "parse" };

/** One request or job. */
export interface RequestSpan {
  readonly traceId: string;
  /** For work that others do for this one. */
  readonly context: TraceContext;
  setName(name: string): void;
  setAttributes(attributes: SpanAttributes): void;
  /** Adds a span below this one. */
  addStage(stage: Stage): void;
  /** @param errorType A status or code; null for success. */
  end(errorType: string | null): void;
}

export interface Telemetry {
  startSpan(start: SpanStart): RequestSpan;
  /** Sends what is finished and closes all connections until `resume`. Spans of the time between are dropped. */
  suspend(): Promise<void>;
  resume(): Promise<void>;
  close(): Promise<void>;
}
