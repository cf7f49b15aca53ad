/** Rules for every answer, whatever the request was. */
import { fileURLToPath } from "node:url";
import { z } from "zod";

import type { Answer } from "./answer-reader.ts";

/** An error describes the problem; it does not repeat the request. */
const MAX_ERROR_LENGTH = 4096;
/** Codes by which the service says that it or its store is temporarily full. */
const busyCodes = new Set(["model_loading", "shutting_down", "storage_unavailable", "storage_full", "queue_full"]);

const errorBody = z.strictObject({
  error: z.strictObject({
    message: z.string().min(1),
    type: z.enum(["invalid_request_error", "authentication_error", "rate_limit_error", "server_error"]),
    param: z.string().nullable(),
    code: z.string().regex(/^[a-z_]+$/),
  }),
});

const anthropicErrorBody = z.strictObject({
  type: z.literal("error"),
  error: z.strictObject({
    message: z.string().min(1),
    type: z.enum([
      "invalid_request_error",
      "authentication_error",
      "not_found_error",
      "request_too_large",
      "rate_limit_error",
      "timeout_error",
      "overloaded_error",
      "api_error",
    ]),
  }),
  request_id: z.string().optional(),
});
const responseErrorEvent = z.object({
  type: z.literal("error"),
  code: z.string(),
  message: z.string().min(1),
  param: z.string().nullable(),
});
const responseFailedEvent = z.object({
  type: z.literal("response.failed"),
  response: z.object({ error: z.object({ code: z.string(), message: z.string().min(1) }) }),
});
/** Last events of streams with named events. */
const lastEvents = new Set(["response.completed", "response.incomplete", "response.failed", "message_stop", "error"]);

const checkout = fileURLToPath(new URL("../../", import.meta.url));
/** Signs of internals that no attack sends. */
const insideSigns: readonly RegExp[] = [
  /\n\s+at \S/,
  /node:internal/,
  /node_modules/,
  /\.[cm]?[jt]s:\d+/,
  /\[object Object\]/,
];

export interface AnswerRules {
  readonly secrets: readonly string[];
  readonly allowedErrorCodes: readonly string[];
}

/** One sentence per fault; empty if the answer is correct. */
export function faultsOf(answer: Answer, rules: AnswerRules): string[] {
  return [...leaksIn(answer, rules.secrets), ...(isForm(answer) ? formFaults(answer, rules) : [])];
}

function leaksIn({ text, headers }: Answer, secrets: readonly string[]): string[] {
  const all = `${text}\n${JSON.stringify(headers)}`;
  const secret = [checkout, ...secrets].find((candidate) => all.includes(candidate));
  const sign = insideSigns.find((candidate) => candidate.test(all));
  return [
    ...(secret === undefined ? [] : [`The answer shows ${JSON.stringify(secret)}.`]),
    ...(sign === undefined ? [] : [`The answer shows the inside: ${sign.exec(all)![0].trim()}.`]),
  ];
}

/** Answers to HEAD have no body, and an answer that was not read to its end has no checkable form. */
function isForm({ method, isComplete }: Answer): boolean {
  return method !== "HEAD" && isComplete;
}

function formFaults(answer: Answer, { allowedErrorCodes }: AnswerRules): string[] {
  const { status, headers, text } = answer;
  const type = headers["content-type"] ?? "";
  if (status >= 400) return isProbe(answer) ? [] : errorFaults(answer, allowedErrorCodes);
  if (type.startsWith("text/event-stream")) return streamFaults(answer, allowedErrorCodes);
  if (type.startsWith("application/json") && parse(text) === undefined)
    return ["The answer is called JSON and is none."];
  return [];
}

/** Probes of platforms answer with the state of the service only. */
function isProbe({ text, status }: Answer): boolean {
  return status === 503 && /^\{"status":"\w+"\}$/.test(text);
}

interface FoundError {
  readonly code: string;
  readonly message: string;
  /** Whether the service, and not the request, is at fault. */
  readonly isOurs: boolean;
}

/** An error in the form of its route; null for anything else. */
function readError(target: string, json: unknown): FoundError | null {
  if (isAnthropic(target)) {
    const { data } = anthropicErrorBody.safeParse(json);
    if (data !== undefined) {
      return { code: data.error.type, message: data.error.message, isOurs: data.error.type === "api_error" };
    }
  }
  const platform = readPlatformError(target, json);
  if (platform !== null) return platform;
  const { data } = errorBody.safeParse(json);
  if (data === undefined) return null;
  const { code, message, type } = data.error;
  // Another spelling of the path need not reach the route, and broken HTTP reaches none.
  if (target.startsWith("/v1/messages") && code !== "invalid_request") return null;
  return { code, message, isOurs: type === "server_error" && !busyCodes.has(code) };
}

/** The forms of Cog and of the Open Inference Protocol, which have a text and no code. */
const platformErrors = [
  { path: /^\/predictions(?:\/|$)/, schema: z.strictObject({ detail: z.string().min(1) }) },
  { path: /^\/v2(?:\/|$)/, schema: z.strictObject({ error: z.string().min(1) }) },
];

function readPlatformError(target: string, json: unknown): FoundError | null {
  for (const { path, schema } of platformErrors) {
    const message = path.test(pathOf(target)) ? Object.values(schema.safeParse(json).data ?? {})[0] : undefined;
    if (message !== undefined) return { code: "platform", message, isOurs: false };
  }
  return null;
}

/** Attacks spell paths in many ways, which the service reads as the URL standard does. */
function isAnthropic(target: string): boolean {
  return /^\/v1\/messages(?:\/|$)/.test(pathOf(target));
}

function pathOf(target: string): string {
  try {
    return decodeURIComponent(new URL(target, "http://127.0.0.1").pathname);
  } catch {
    return target;
  }
}

function isBusy(code: string): boolean {
  return busyCodes.has(code) || code === "overloaded_error" || code === "timeout_error";
}

function errorFaults({ status, headers, text, target }: Answer, allowedCodes: readonly string[]): string[] {
  const type = headers["content-type"] ?? "";
  const found = readError(target, parse(text));
  if (!type.startsWith("application/json") || found === null) {
    return [
      `Status ${status} without ${isAnthropic(target) ? "Anthropic's" : "OpenAI's"} form of an error: ${JSON.stringify(text.slice(0, 200))} (${type}).`,
    ];
  }
  const { code, message, isOurs } = found;
  const faults: string[] = [];
  if (status >= 500 && (isOurs || !isBusy(code)) && !allowedCodes.includes(code))
    faults.push(`Status ${status}, ${code}: ${message}`);
  if (text.length > MAX_ERROR_LENGTH) faults.push(`An error of ${text.length} characters, ${code}.`);
  return faults;
}

function streamFaults({ text, target }: Answer, allowedCodes: readonly string[]): string[] {
  const events = text.split("\n\n").filter((event) => event !== "" && !event.startsWith(":"));
  const isNamed = isAnthropic(target) || target.startsWith("/v1/responses");
  return isNamed ? namedStreamFaults(events, target, allowedCodes) : chunkStreamFaults(events, target, allowedCodes);
}

function chunkStreamFaults(events: readonly string[], target: string, allowedCodes: readonly string[]): string[] {
  if (events.at(-1) !== "data: [DONE]") return ["The stream ends without [DONE]."];
  return events.slice(0, -1).flatMap((event) => {
    const json = event.startsWith("data: ") ? parse(event.slice("data: ".length)) : undefined;
    if (typeof json !== "object" || json === null) return [`An event is no JSON: ${event.slice(0, 100)}`];
    if (!("error" in json)) return [];
    const found = readError(target, json);
    if (found === null) return [`An error event without OpenAI's form: ${event.slice(0, 200)}`];
    return faultOf(found, allowedCodes);
  });
}

function namedStreamFaults(events: readonly string[], target: string, allowedCodes: readonly string[]): string[] {
  const last = /^event: (\S+)/.exec(events.at(-1) ?? "")?.[1];
  if (last === undefined || !lastEvents.has(last)) return [`The stream ends with ${events.at(-1)?.slice(0, 100)}.`];
  return events.flatMap((event) => {
    const [, name, data = ""] = /^event: (\S+)\ndata: (.*)$/.exec(event) ?? [];
    const json = parse(data);
    if (typeof json !== "object" || json === null || !("type" in json) || json.type !== name) {
      return [`An event is not named by its type: ${event.slice(0, 100)}`];
    }
    if (name !== "error" && name !== "response.failed") return [];
    const found = isAnthropic(target) ? readError(target, json) : readResponseError(json);
    return found === null ? [`An error event without its form: ${event.slice(0, 200)}`] : faultOf(found, allowedCodes);
  });
}

function readResponseError(json: object): FoundError | null {
  const event = responseErrorEvent.safeParse(json).data;
  if (event !== undefined) return { ...event, isOurs: event.code.endsWith("internal_error") };
  const failed = responseFailedEvent.safeParse(json).data;
  return failed === undefined
    ? null
    : { ...failed.response.error, isOurs: failed.response.error.message.startsWith("Internal error") };
}

function faultOf({ code, message, isOurs }: FoundError, allowedCodes: readonly string[]): string[] {
  return isOurs && !allowedCodes.includes(code) ? [`An error event of ours, ${code}: ${message}`] : [];
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
