/** The context of a caller's trace: https://www.w3.org/TR/trace-context/. */

export interface TraceContext {
  readonly traceparent: string;
  readonly tracestate?: string;
}

/** The form of version 00. Only later versions may append fields, which are ignored. */
const traceparentForm = /^(?!ff|00-.{52}-)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?$/;

/** The specification asks to keep at least this many characters. Longer ones are dropped. */
const MAX_TRACESTATE_LENGTH = 512;

/**
 * @param read Returns the field of a message's headers.
 * @returns Null without a valid `traceparent`; an invalid one is ignored, as the specification says.
 */
export function readTraceContext(read: (name: "traceparent" | "tracestate") => unknown): TraceContext | null {
  const traceparent = read("traceparent");
  if (typeof traceparent !== "string" || !traceparentForm.test(traceparent)) return null;
  const tracestate = read("tracestate");
  const isKept = typeof tracestate === "string" && tracestate !== "" && tracestate.length <= MAX_TRACESTATE_LENGTH;
  return { traceparent, ...(isKept && { tracestate }) };
}

/** For logs. */
export function traceIdOf({ traceparent }: TraceContext): string {
  return traceparent.slice(3, 35);
}
