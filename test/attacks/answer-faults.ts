/** Rules for every answer, whatever the request was. */
import { fileURLToPath } from "node:url";
import { z } from "zod";

import type { Answer } from "./attack.ts";

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
  if (status >= 400) return isProbe(answer) ? [] : errorFaults(status, type, text, allowedErrorCodes);
  if (type.startsWith("text/event-stream")) return streamFaults(text, allowedErrorCodes);
  if (type.startsWith("application/json") && parse(text) === undefined)
    return ["The answer is called JSON and is none."];
  return [];
}

/** Probes of platforms answer with the state of the service only. */
function isProbe({ text, status }: Answer): boolean {
  return status === 503 && /^\{"status":"\w+"\}$/.test(text);
}

function errorFaults(status: number, type: string, text: string, allowedCodes: readonly string[]): string[] {
  const parsed = errorBody.safeParse(parse(text));
  if (!type.startsWith("application/json") || !parsed.success) {
    return [`Status ${status} without OpenAI's form of an error: ${JSON.stringify(text.slice(0, 200))} (${type}).`];
  }
  const { code, message } = parsed.data.error;
  const faults: string[] = [];
  if (status >= 500 && !busyCodes.has(code) && !allowedCodes.includes(code)) {
    faults.push(`Status ${status}, ${code}: ${message}`);
  }
  if (text.length > MAX_ERROR_LENGTH) faults.push(`An error of ${text.length} characters, ${code}.`);
  return faults;
}

function streamFaults(text: string, allowedCodes: readonly string[]): string[] {
  const events = text.split("\n\n").filter((event) => event !== "" && !event.startsWith(":"));
  if (events.at(-1) !== "data: [DONE]") return ["The stream ends without [DONE]."];
  return events.slice(0, -1).flatMap((event) => {
    const json = event.startsWith("data: ") ? parse(event.slice("data: ".length)) : undefined;
    if (typeof json !== "object" || json === null) return [`An event is no JSON: ${event.slice(0, 100)}`];
    if (!("error" in json)) return [];
    const parsed = errorBody.safeParse(json);
    if (!parsed.success) return [`An error event without OpenAI's form: ${event.slice(0, 200)}`];
    const { type, code, message } = parsed.data.error;
    const isOurs = type === "server_error" && !busyCodes.has(code) && !allowedCodes.includes(code);
    return isOurs ? [`An error event of ours, ${code}: ${message}`] : [];
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
