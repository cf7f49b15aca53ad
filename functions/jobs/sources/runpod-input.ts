/**
 * Inputs and outputs of RunPod jobs. Inputs are the messages of other queues, and the forms of runpod-workers/worker-vllm
 * (src/handler.py at 7a92503 of 2026-08-20), so that its clients need no change.
 */
import { parseBoundedJson } from "../../http/bounded-json.ts";
import type { JobResult } from "../job-result.ts";
import { parseText, sliceMembers } from "./json-slices.ts";

export interface RunpodInput {
  /** For `parseMessage`. */
  readonly message: string;
  /**
   * `line`: the output is the result line. `answer`: a list with the answer alone, as worker-vllm's aggregated stream is.
   * `models`: the job asks for the models, and no engine is needed.
   */
  readonly form: "line" | "answer" | "models";
  /** Whether the sender reads the answer from the stream: also one that is not streamed, if it is an OpenAI client's. */
  readonly usesStream: boolean;
}

/** Fields of worker-vllm's inputs that are none of a request's. Batches of tokens follow from RunPod's speed here. */
const workerFields = new Set(["sampling_params", "max_batch_size", "min_batch_size", "batch_size_growth_factor"]);

/** `job` as RunPod hands it out. Null without an id. */
export function readRunpodJob(job: string): { readonly id: string; readonly input: RunpodInput } | null {
  const members = sliceMembers(job);
  const id = parseText(members?.get("id"));
  if (id === null || id === "") return null;
  return { id, input: readRunpodInput(members?.get("input") ?? "null") };
}

/** `text` is the job's `input`, which may be any text. */
export function readRunpodInput(text: string): RunpodInput {
  const parsed = parseBoundedJson(text);
  const input = parsed.kind === "parsed" ? asObject(parsed.value) : null;
  // The message's refusal says what is wrong with it.
  if (input === null) return { message: text, form: "answer", usesStream: false };
  if (input.openai_input || input.openai_route) {
    return toRequest(input, { url: input.openai_route, body: input.openai_input, usesStream: true });
  }
  if (input.route) return toRequest(input, { url: input.route, body: input.body, usesStream: false });
  if ("body" in input || "custom_id" in input || "url" in input || typeof input.input === "string") {
    const usesStream = asObject(input.body)?.stream === true;
    return { message: text, form: "line", usesStream };
  }
  const body = Object.entries(input).filter(
    // worker-vllm prefers messages to a prompt.
    ([name]) => !workerFields.has(name) && !(name === "prompt" && input.messages),
  );
  const fields: Readonly<Record<string, unknown>> = { ...asObject(input.sampling_params), ...Object.fromEntries(body) };
  return { message: JSON.stringify(fields), form: "answer", usesStream: fields.stream === true };
}

function toRequest(
  { webhook }: Readonly<Record<string, unknown>>,
  { url: given, body, usesStream }: { readonly url: unknown; readonly body: unknown; readonly usesStream: boolean },
): RunpodInput {
  const url = typeof given === "string" ? given.replace(/^\/openai(?=\/v1\/)/, "") : given;
  // It has no use for a body, which senders leave empty.
  if (url === "/v1/models") return { message: "null", form: "models", usesStream };
  const message = JSON.stringify({ ...(url ? { url } : {}), body: body ?? {}, webhook });
  return { message, form: "answer", usesStream: usesStream || asObject(body)?.stream === true };
}

/** The body of a result: `{"output": ...}` or `{"error": ...}`, whose value is text. */
export function toRunpodOutput({ text, isSuccess }: JobResult, form: RunpodInput["form"]): object {
  const line = JSON.parse(text) as ResultLine;
  if (!isSuccess) {
    const error = line.error ?? line.response?.body.error ?? { code: "internal_error", message: "The job failed." };
    return { error: JSON.stringify(error) };
  }
  return { output: form === "line" ? line : [line.response?.body] };
}

interface ResultLine {
  readonly response: { readonly body: { readonly error?: unknown } } | null;
  readonly error: unknown;
}

function asObject(value: unknown): Readonly<Record<string, unknown>> | null {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : null;
}
