/** Settings of the HTTP service and of all requests. */
import { samplingLimits } from "../../engine/contract/sampling-params.ts";
import { extraArguments } from "./json-values.ts";
import { setting } from "./setting.ts";
import type { Parser } from "./setting.ts";
import {
  anyText,
  boolean,
  bytes,
  commaSeparated,
  integer,
  MEBIBYTE,
  oneOf,
  origins,
  searchPath,
  seconds,
} from "./values.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";

/** A request is held before its body is read, and must have arrived after 300 s (`defaultTimeouts.request`). */
const MAX_HOLD_SECONDS = 240;

/** vLLM's names. */
const schedulingPolicies = ["fcfs", "priority"] as const;

/** Clients send a key in a header, where it ends at a space, and where other letters arrive in any encoding. */
function apiKeys(): Parser<readonly string[]> {
  const isSendable = (key: string): boolean => /^[\x21-\x7e]+$/.test(key);
  return commaSeparated("one or more keys separated by commas, of ASCII characters without spaces", isSendable);
}

export const serviceSettings = {
  port: setting("PORT", integer(0, 65_535), "TCP port to listen on; 0 takes a free one.", { default: 8000 }),
  host: setting("HOST", anyText(), "Address to listen on; :: listens on IPv6 and IPv4.", { default: "0.0.0.0" }),

  /** Answers give the first. Null to serve the model's own name. */
  servedModelNames: setting(
    "SERVED_MODEL_NAME",
    commaSeparated("names separated by commas"),
    "Model names that requests may use; answers give the first. Default: the last part of MODEL.",
  ),

  /** An empty list serves everyone. An empty text is an error: it must not open the service. */
  apiKeys: setting(
    "API_KEY",
    apiKeys(),
    "Keys, separated by commas. Requests must send one as a bearer token. Without keys, everyone is served.",
    { secret: true, rejectEmpty: true, unset: [] },
  ),
  /** An empty list leaves out the routes that it protects. An empty text is an error. */
  adminKeys: setting(
    "ADMIN_KEY",
    apiKeys(),
    "Keys, separated by commas, for POST /admin/quiesce and /admin/resume; without any, there are no such routes.",
    { secret: true, rejectEmpty: true, unset: [] },
  ),
  /** Origins of web pages that may read answers; `*` is every one. */
  allowedOrigins: setting(
    "ALLOWED_ORIGINS",
    origins(),
    "Origins of web pages that may read answers, separated by commas, or * for all; default: none.",
    { unset: [] },
  ),
  hasPlayground: setting(
    "PLAYGROUND",
    boolean(),
    "Serve a web page at /playground to try the model, unless it computes embeddings.",
    {
      default: true,
    },
  ),

  maxBodyBytes: setting(
    "MAX_BODY_BYTES",
    bytes(1024, 1024 * MEBIBYTE),
    "Largest request body in bytes, with the images in it.",
    { default: "32MiB" },
  ),
  bodyIdleTimeoutMs: setting(
    "BODY_IDLE_TIMEOUT_SECONDS",
    seconds(0.1, 300),
    "Longest wait for the next byte of a request body. After it, the request is answered with 408.",
    { default: 10 },
  ),
  schedulingPolicy: setting(
    "SCHEDULING_POLICY",
    oneOf(schedulingPolicies),
    "fcfs: requests run in order of arrival, and lines of batches after them. priority: requests may have a priority, and lower ones run first.",
    { default: "fcfs" },
  ),
  maxLogprobs: setting(
    "MAX_LOGPROBS",
    integer(0, samplingLimits.logprobs),
    "Largest number of alternatives per token that a request may ask for.",
    { default: samplingLimits.logprobs },
  ),
  /** Arguments in a request override these. */
  defaultExtraArguments: setting(
    "LOGITS_PROCESSOR_DEFAULT_ARGS",
    extraArguments(),
    "JSON object: default arguments for logits processors. The vllm_xargs of a request override them.",
    { default: "{}" },
  ),

  toolCallParser: setting(
    "TOOL_CALL_PARSER",
    anyText(),
    "Format of the model's tool calls: hermes, qwen3_coder, mistral, mistral_v11, llama3_json, pythonic, gemma4, lfm2, glm45, hunyuan_a13b, or module:Export; default: what the chat template shows.",
  ),
  reasoningParser: setting(
    "REASONING_PARSER",
    anyText(),
    "Format of the model's thinking: qwen3, deepseek_r1, mistral, seed_oss, kimi, gemma4, hunyuan_a13b, none, or module:Export; default: what the chat template shows.",
  ),
  parserPath: setting(
    "PARSER_PATH",
    searchPath(),
    "Folders, separated by colons, in which modules of parsers are looked up.",
    { default: "." },
  ),

  shutdownGraceMs: setting(
    "SHUTDOWN_GRACE_SECONDS",
    seconds(0, 86_400),
    "How long running requests may take after SIGTERM. Then they are ended.",
    { default: 25 },
  ),
  coldStartHoldMs: setting(
    "COLD_START_HOLD_SECONDS",
    seconds(0, MAX_HOLD_SECONDS),
    "How long requests wait for a model that is still loading, before they are answered with 503; 0 answers at once.",
    { default: 0 },
  ),
  /** Null if it depends on `runpodEndpointId`. */
  pingStatusWhileStarting: setting(
    "HEALTH_INITIALIZING_CODE",
    oneOf([204, 503]),
    "Status of /ping while the model loads; default: 204 where RUNPOD_ENDPOINT_ID is set, else 503.",
  ),
  runpodEndpointId: setting("RUNPOD_ENDPOINT_ID", anyText(), "Set by RunPod."),
  logLevel: setting("LOG_LEVEL", oneOf<LogLevel>(["debug", "info", "warn", "error"]), "Lowest level to log.", {
    default: "info",
  }),
};
