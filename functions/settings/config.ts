/**
 * Every setting of the service, by its environment name, in one schema. Names are the upper-snake form of vLLM's flags
 * where it has one; AWS settings have AWS's own names. This is the only file that knows what the environment is called.
 */
import { homedir, tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";

import type { EngineConfig, ExtraArgument } from "../../engine/index.ts";
import {
  batchStore,
  bytes,
  checkpointReference,
  commaSeparated,
  extraArgumentsObject,
  gibibytes,
  httpUrl,
  imagesPerPrompt,
  integer,
  jsonObject,
  logitsProcessors,
  oneOf,
  origins,
  parsed,
  path,
  redisUrl,
  searchPath,
  seconds,
} from "./values.ts";
import type { BatchStoreLocation } from "./values.ts";

const MEBIBYTE = 1024 ** 2;

/** What `--help` and `--print-config` say of a setting. */
export interface SettingDescription {
  readonly name: string;
  readonly description: string;
  /** Null where nothing is the default. */
  readonly defaultText: string | null;
  readonly isSecret: boolean;
}

interface SettingOptions {
  readonly secret?: boolean;
}

function required<Schema extends z.ZodType>(schema: Schema, defaultText: string, description: string) {
  return z.preprocess((text) => text ?? defaultText, schema).meta({ description, defaultText });
}

function optional<Schema extends z.ZodType>(
  schema: Schema,
  description: string,
  { secret = false }: SettingOptions = {},
) {
  return schema
    .optional()
    .transform((value) => value ?? null)
    .meta({ description, secret });
}

const text = parsed("some text", (value) => (value === "" ? undefined : value));

const settings = z.object({
  PORT: required(integer(0, 65_535), "8000", "TCP port to listen on; 0 takes a free one."),
  HOST: required(text, "0.0.0.0", "Address to listen on; :: listens on IPv6 and IPv4."),

  MODEL: required(
    checkpointReference(),
    fileURLToPath(new URL("../../models/fovea-shapes", import.meta.url)),
    "Folder of a Hugging Face checkpoint, or s3://bucket/prefix.",
  ),
  SERVED_MODEL_NAME: optional(
    commaSeparated("names separated by commas"),
    "Names that requests may give as model, the first in answers; default: the last part of MODEL.",
  ),
  DTYPE: required(
    oneOf(["auto", "float32", "float16", "int8", "int4"]),
    "auto",
    "Weights in memory: auto, float32, float16 (GPU), int8 or int4.",
  ),
  DEVICE: required(oneOf(["cpu", "cuda", "webgpu"]), "cpu", "cpu, cuda or webgpu."),
  DEVICE_ID: required(integer(0, 1023), "0", "Which of several GPUs."),
  NUM_THREADS: optional(integer(1, 1024), "Threads of one computation; default: the physical cores."),
  CACHE_FOLDER: optional(
    path(),
    "Keeps downloaded checkpoints and quantised weights; default: fovea in $XDG_CACHE_HOME or ~/.cache.",
  ),

  MAX_MODEL_LEN: optional(
    integer(1),
    "Most tokens of one sequence, prompt and output; default: the checkpoint's limit.",
  ),
  MAX_NUM_SEQS: required(integer(1, 4096), "32", "Most sequences computed together."),
  MAX_NUM_BATCHED_TOKENS: required(
    integer(1),
    "512",
    "Most tokens computed in one step; long prompts are split, so that answers under way do not stall.",
  ),
  MAX_NUM_WAITING: required(integer(0, 1_000_000), "256", "Most requests waiting; one more is answered with 429."),
  ENGINE_STEP_TIMEOUT_SECONDS: required(
    seconds(0.1, 86_400),
    "120",
    "Longest step of the engine: after it /health is 503, after twice as long requests are ended and /livez is 503.",
  ),
  ENABLE_PREFIX_CACHING: required(
    oneOf(["true", "false"]),
    "true",
    "Whether prompts reuse what equal beginnings, images included, have left in KV slots.",
  ),
  MAX_LOGPROBS: required(integer(0, 20), "20", "Most alternatives a request may ask for per token."),
  LOGITS_PROCESSORS: required(
    logitsProcessors(),
    "[]",
    'Logits processors, applied in this order: module:Export, several separated by commas; or a JSON array of names and of {"class", "options"}.',
  ),
  LOGITS_PROCESSOR_PATH: required(searchPath(), ".", "Folders in which modules of logits processors are looked up."),

  LOGITS_PROCESSOR_DEFAULT_ARGS: required(
    extraArgumentsObject(),
    "{}",
    "JSON object: arguments for logits processors that every request has, unless its own vllm_xargs say otherwise.",
  ),

  API_KEY: optional(
    commaSeparated("one or more keys separated by commas"),
    "Keys of which /v1 requests must send one as a bearer token; without it everyone is served.",
    { secret: true },
  ),
  SHUTDOWN_GRACE_SECONDS: required(
    seconds(0, 86_400),
    "25",
    "How long requests under way may take after SIGTERM before they are ended.",
  ),
  HEALTH_INITIALIZING_CODE: optional(
    oneOf(["204", "503"]),
    "Status of /ping while the model loads; default: 204 where RUNPOD_ENDPOINT_ID is set, else 503.",
  ),
  RUNPOD_ENDPOINT_ID: optional(text, "Set by RunPod."),
  LOG_LEVEL: required(oneOf(["debug", "info", "warn", "error"]), "info", "Least level that is logged."),

  ALLOWED_ORIGINS: optional(
    origins(),
    "Origins of web pages that may read answers, separated by commas, or * for all; default: none.",
  ),
  PLAYGROUND: required(oneOf(["true", "false"]), "true", "Whether /playground is a web page to try the model on."),

  MAX_BODY_BYTES: required(bytes(1024, 1024 * MEBIBYTE), "32MiB", "Longest request body, images within it included."),
  BODY_IDLE_TIMEOUT_SECONDS: required(
    seconds(0.1, 300),
    "10",
    "Longest wait for the next byte of a request body before the request is answered with 408.",
  ),
  LIMIT_MM_PER_PROMPT: required(
    imagesPerPrompt(),
    '{"image": 16}',
    'Most images of one prompt; {"image": {"count": 4, "width": 512, "height": 512}} also has check plan for no larger ones.',
  ),
  ENABLE_MM_EMBEDS: required(
    oneOf(["true", "false"]),
    "false",
    "Whether requests may bring image embeddings, which are believed to be the vision encoder's.",
  ),
  MM_PROCESSOR_KWARGS: required(
    jsonObject(),
    "{}",
    "JSON object: changes to the checkpoint's image processor, as preprocessor_config.json names its options.",
  ),
  MAX_IMAGE_BYTES: required(bytes(1024, 1024 * MEBIBYTE), "20MiB", "Longest encoded image."),
  MAX_IMAGE_PIXELS: required(integer(1, 268_402_689), "67108864", "Most pixels of one image, checked before decoding."),
  MAX_IMAGE_DECODE_COST: required(
    integer(65_536),
    "134217728",
    "Most that decoding one image may cost, in pixels of plain RGB; those of AVIF, 16 bits and progressive JPEG cost several.",
  ),
  MAX_REQUEST_DECODE_COST: required(
    integer(65_536),
    "536870912",
    "Most that decoding the images of one request may cost, without those that are cached.",
  ),
  IMAGE_DECODE_TIMEOUT_SECONDS: required(
    seconds(1, 600),
    "20",
    "Time for decoding one image; counted in whole seconds.",
  ),
  IMAGE_FETCH_TIMEOUT_SECONDS: required(seconds(0.1, 600), "10", "Time for fetching one image, redirects included."),
  ALLOWED_MEDIA_DOMAINS: optional(
    commaSeparated("host names separated by commas", (entry) => /^[^\s/:@]+$/.test(entry)),
    "Hosts from which images are fetched over the web; default: all public ones.",
  ),
  ALLOWED_PRIVATE_HOSTS: optional(
    commaSeparated("host:port entries separated by commas", (entry) => /^[^\s/@]+:\d+$/.test(entry)),
    "host:port entries of private networks from which images may be fetched all the same; default: none.",
  ),
  ALLOW_HTTP_IMAGES: required(
    oneOf(["true", "false"]),
    "false",
    "Whether http:// images are fetched, not only https://.",
  ),

  MM_PROCESSOR_CACHE_GB: required(
    gibibytes(0, 1024),
    "0.25",
    "GiB of this process's memory for what is remembered of images: processed, encoded, where they came from; 0 is none.",
  ),
  REDIS_URL: optional(
    redisUrl(),
    "redis:// or rediss:// server over which replicas share what they remember of images; default: none.",
    { secret: true },
  ),
  REDIS_COMMAND_TIMEOUT_MS: required(
    integer(1, 60_000),
    "50",
    "Longest that a request waits for Redis, which one in vain spares the next; megabytes over a slow network take more.",
  ),
  REDIS_KEY_PREFIX: required(
    text,
    "fovea",
    "In front of every key in Redis; deployments of different ones share nothing.",
  ),
  PROCESSOR_CACHE_TTL_SECONDS: required(
    integer(1, 31_536_000),
    "86400",
    "How long Redis keeps what was written of an image.",
  ),
  PROCESSOR_CACHE_MAX_ITEM_BYTES: required(
    bytes(1024, 512 * MEBIBYTE),
    "32MiB",
    "Longest value written to Redis; larger ones stay in memory.",
  ),

  BATCH_STORE: optional(
    batchStore(),
    "Keeps files and batches: a folder, s3://bucket/prefix, or none for no batches; default: fovea/batches in $XDG_DATA_HOME or ~/.local/share.",
  ),
  BATCH_MAX_NUM_SEQS: optional(
    integer(1, 4096),
    "Most sequences of batches computed together, fewer while requests need the room; default: half of MAX_NUM_SEQS.",
  ),
  BATCH_MAX_FILE_BYTES: required(bytes(1024, 64 * 1024 * MEBIBYTE), "200MiB", "Longest file for batches."),
  BATCH_MAX_STORE_BYTES: required(
    bytes(1024, 1024 ** 3 * MEBIBYTE),
    "16GiB",
    "Most bytes of all files together: an upload beyond it is refused, results of batches are not.",
  ),
  BATCH_STORE_TIMEOUT_SECONDS: required(
    seconds(0.1, 300),
    "5",
    "How long S3 may take for a call of a request for files or batches before 503; a part of a file has 4 times as long, the work on batches 6 times.",
  ),
  BATCH_MAX_LINES: required(integer(1, 10_000_000), "50000", "Most requests of one batch."),

  AWS_REGION: optional(text, "Region of S3 buckets; default: us-east-1 where an endpoint is set."),
  AWS_ENDPOINT_URL_S3: optional(httpUrl(), "Another S3 service than Amazon's; buckets are then addressed by path."),
  AWS_ENDPOINT_URL: optional(httpUrl(), "The same for all of AWS; AWS_ENDPOINT_URL_S3 comes first."),
  AWS_PROFILE: optional(text, "Read by the AWS SDK, as all other AWS names."),
  AWS_ACCESS_KEY_ID: optional(text, "Read by the AWS SDK.", { secret: true }),
  AWS_SECRET_ACCESS_KEY: optional(text, "Read by the AWS SDK.", { secret: true }),
  AWS_SESSION_TOKEN: optional(text, "Read by the AWS SDK.", { secret: true }),
});

export type SettingName = keyof typeof settings.shape;

export const settingDescriptions: readonly SettingDescription[] = Object.entries(settings.shape).map(
  ([name, schema]) => {
    const { description = "", defaultText = null, secret = false } = schema.meta() ?? {};
    return { name, description, defaultText: defaultText as string | null, isSecret: secret as boolean };
  },
);

export type LogLevel = "debug" | "info" | "warn" | "error";

export interface Config {
  readonly host: string;
  readonly port: number;
  /** At least one; the first is the one that answers give. */
  readonly servedModelNames: readonly string[];
  /** Empty serves everyone. */
  readonly apiKeys: readonly string[];
  /** Origins of web pages that may read answers; `*` is every one. */
  readonly allowedOrigins: readonly string[];
  readonly hasPlayground: boolean;
  readonly maxBodyBytes: number;
  readonly bodyIdleTimeoutMs: number;
  readonly maxLogprobs: number;
  /** Arguments for logits processors, which those of a request override. */
  readonly defaultExtraArguments: Readonly<Record<string, ExtraArgument>>;
  readonly shutdownGraceMs: number;
  readonly logLevel: LogLevel;
  readonly pingStatusWhileStarting: 204 | 503;
  readonly engine: EngineConfig;
  readonly images: {
    readonly allowHttp: boolean;
    /** Empty allows all public hosts. */
    readonly allowedDomains: readonly string[];
    /** `host:port`. */
    readonly allowedPrivateHosts: readonly string[];
  };
  readonly batches: BatchConfig;
  /** Null where replicas share nothing. */
  readonly redisUrl: string | null;
  readonly s3: {
    readonly endpoint: string | null;
    readonly region: string | null;
  };
}

export interface BatchConfig {
  readonly store: BatchStoreLocation;
  /** Of the engine's, at most; null is half of them. */
  readonly maxNumSequences: number | null;
  readonly maxFileBytes: number;
  readonly maxStoreBytes: number;
  readonly maxNumLines: number;
  /** Of one call for a request that waits. */
  readonly storeTimeoutMs: number;
  /** In front of every key of the queue in Redis. */
  readonly queueKeyPrefix: string;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** All that is wrong with the environment, one sentence a setting. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join("\n"));
    this.problems = problems;
  }
}

/** Throws ConfigError. A name set to nothing counts as unset, except API_KEY: an empty key must not open the service. */
export function loadConfig(environment: Environment): Config {
  const texts = Object.fromEntries(
    settingDescriptions
      .map(({ name }) => [name, environment[name]] as const)
      .filter(([name, value]) => value !== undefined && (value.trim() !== "" || name === "API_KEY")),
  );
  const result = settings.safeParse(texts);
  if (!result.success) throw new ConfigError(result.error.issues.map((issue) => describeIssue(issue, texts)));
  const values = result.data;
  if (values.MAX_NUM_BATCHED_TOKENS < values.MAX_NUM_SEQS) {
    throw new ConfigError([
      `MAX_NUM_BATCHED_TOKENS is ${values.MAX_NUM_BATCHED_TOKENS}: expected at least MAX_NUM_SEQS, which is ${values.MAX_NUM_SEQS}.`,
    ]);
  }
  if (values.BATCH_MAX_NUM_SEQS !== null && values.BATCH_MAX_NUM_SEQS > values.MAX_NUM_SEQS) {
    throw new ConfigError([
      `BATCH_MAX_NUM_SEQS is ${values.BATCH_MAX_NUM_SEQS}: expected at most MAX_NUM_SEQS, which is ${values.MAX_NUM_SEQS}.`,
    ]);
  }
  return toConfig(values, environment);
}

function toConfig(values: z.output<typeof settings>, environment: Environment): Config {
  const { count, width, height } = values.LIMIT_MM_PER_PROMPT;
  const initializingCode = values.HEALTH_INITIALIZING_CODE ?? (values.RUNPOD_ENDPOINT_ID === null ? "503" : "204");
  return {
    host: values.HOST,
    port: values.PORT,
    servedModelNames: values.SERVED_MODEL_NAME ?? [basename(values.MODEL)],
    apiKeys: values.API_KEY ?? [],
    allowedOrigins: values.ALLOWED_ORIGINS ?? [],
    hasPlayground: values.PLAYGROUND === "true",
    maxBodyBytes: values.MAX_BODY_BYTES,
    bodyIdleTimeoutMs: values.BODY_IDLE_TIMEOUT_SECONDS,
    maxLogprobs: values.MAX_LOGPROBS,
    defaultExtraArguments: values.LOGITS_PROCESSOR_DEFAULT_ARGS,
    shutdownGraceMs: values.SHUTDOWN_GRACE_SECONDS,
    logLevel: values.LOG_LEVEL,
    pingStatusWhileStarting: initializingCode === "204" ? 204 : 503,
    engine: {
      model: values.MODEL,
      dtype: values.DTYPE,
      device: values.DEVICE,
      deviceId: values.DEVICE_ID,
      maxModelLen: values.MAX_MODEL_LEN,
      maxNumSequences: values.MAX_NUM_SEQS,
      maxNumBatchedTokens: values.MAX_NUM_BATCHED_TOKENS,
      maxNumWaiting: values.MAX_NUM_WAITING,
      stepTimeoutMs: values.ENGINE_STEP_TIMEOUT_SECONDS,
      enablePrefixCaching: values.ENABLE_PREFIX_CACHING === "true",
      logitsProcessors: values.LOGITS_PROCESSORS,
      logitsProcessorPath: values.LOGITS_PROCESSOR_PATH,
      numThreads: values.NUM_THREADS,
      cacheFolder: values.CACHE_FOLDER ?? defaultCacheFolder(environment),
      enableMmEmbeds: values.ENABLE_MM_EMBEDS === "true",
      mmProcessorOptions: values.MM_PROCESSOR_KWARGS,
      imageLimits: {
        maxImagesPerPrompt: count,
        ...((width ?? height) !== undefined && { largestExpectedImage: { width, height } }),
        maxImageBytes: values.MAX_IMAGE_BYTES,
        maxImagePixels: values.MAX_IMAGE_PIXELS,
        maxDecodeCost: values.MAX_IMAGE_DECODE_COST,
        maxRequestDecodeCost: values.MAX_REQUEST_DECODE_COST,
        decodeTimeoutMs: values.IMAGE_DECODE_TIMEOUT_SECONDS,
        fetchTimeoutMs: values.IMAGE_FETCH_TIMEOUT_SECONDS,
      },
      caches: {
        maxMemoryBytes: values.MM_PROCESSOR_CACHE_GB,
        timeToLiveSeconds: values.PROCESSOR_CACHE_TTL_SECONDS,
        maxValueBytes: values.PROCESSOR_CACHE_MAX_ITEM_BYTES,
        commandTimeoutMs: values.REDIS_COMMAND_TIMEOUT_MS,
        keyPrefix: values.REDIS_KEY_PREFIX,
      },
    },
    images: {
      allowHttp: values.ALLOW_HTTP_IMAGES === "true",
      allowedDomains: values.ALLOWED_MEDIA_DOMAINS ?? [],
      allowedPrivateHosts: values.ALLOWED_PRIVATE_HOSTS ?? [],
    },
    batches: {
      store: values.BATCH_STORE ?? { kind: "folder", folder: join(defaultDataFolder(environment), "batches") },
      maxNumSequences: values.BATCH_MAX_NUM_SEQS,
      maxFileBytes: values.BATCH_MAX_FILE_BYTES,
      maxStoreBytes: values.BATCH_MAX_STORE_BYTES,
      maxNumLines: values.BATCH_MAX_LINES,
      storeTimeoutMs: values.BATCH_STORE_TIMEOUT_SECONDS,
      queueKeyPrefix: values.REDIS_KEY_PREFIX,
    },
    redisUrl: values.REDIS_URL,
    s3: { endpoint: values.AWS_ENDPOINT_URL_S3 ?? values.AWS_ENDPOINT_URL, region: values.AWS_REGION },
  };
}

function defaultCacheFolder(environment: Environment): string {
  if (environment.XDG_CACHE_HOME) return join(environment.XDG_CACHE_HOME, "fovea");
  return inHome([".cache", "fovea"], "fovea-cache");
}

/** For what is no cache: nothing but its users makes it again. */
function defaultDataFolder(environment: Environment): string {
  if (environment.XDG_DATA_HOME) return join(environment.XDG_DATA_HOME, "fovea");
  return inHome([".local", "share", "fovea"], "fovea-data");
}

function inHome(names: readonly string[], temporaryName: string): string {
  try {
    return join(homedir(), ...names);
  } catch {
    // A container may run as a user id that has no home.
    return join(tmpdir(), temporaryName);
  }
}

function describeIssue(issue: z.core.$ZodIssue, texts: Environment): string {
  const name = String(issue.path[0]);
  const isSecret = settingDescriptions.some((setting) => setting.name === name && setting.isSecret);
  const shown = isSecret ? "has a value that does not parse" : `is ${JSON.stringify((texts[name] ?? "").slice(0, 80))}`;
  return `${name} ${shown}: ${issue.message}.`;
}
