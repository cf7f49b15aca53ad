import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { describe, expect, test } from "vitest";

import { defaultDecodeLimits } from "../../../engine/contract/default-limits.ts";
import { loadConfig, settingDescriptions } from "../../../functions/settings/config.ts";
import type { Config } from "../../../functions/settings/config.ts";
import { findNearNames } from "../../../functions/settings/near-names.ts";
import type { ConfigError, Environment } from "../../../functions/settings/setting.ts";

test("an empty environment serves the shipped checkpoint to everyone on port 8000", () => {
  const config = loadConfig({});
  expect(config).toMatchObject({
    port: 8000,
    host: "0.0.0.0",
    servedModelNames: ["fovea-shapes"],
    apiKeys: [],
    shutdownGraceMs: 25_000,
    pingStatusWhileStarting: 503,
    engine: {
      model: resolve("models/fovea-shapes"),
      dtype: "auto",
      device: "cpu",
      maxModelLen: null,
      numThreads: null,
      logitsProcessors: [],
      cacheFolder: join(homedir(), ".cache", "fovea"),
    },
  });
});

const collector = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://localhost:4318" };

test.for<[Record<string, string>, (config: Config) => unknown, unknown]>([
  [
    { ...collector, OTEL_EXPORTER_OTLP_PROTOCOL: "http/json", OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: "http/protobuf" },
    ({ telemetry }) => [telemetry?.traces?.protocol, telemetry?.metrics?.protocol],
    ["http/protobuf", "http/json"],
  ],
  [
    { ...collector, OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: "http/json" },
    ({ telemetry }) => [telemetry?.traces?.protocol, telemetry?.metrics?.protocol],
    ["http/protobuf", "http/json"],
  ],
  [
    {
      ...collector,
      OTEL_EXPORTER_OTLP_HEADERS: "authorization=both,tenant=a",
      OTEL_EXPORTER_OTLP_METRICS_HEADERS: "authorization=metrics",
      OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: "500",
    },
    ({ telemetry }) => [telemetry?.traces, telemetry?.metrics],
    [
      {
        url: "http://localhost:4318/v1/traces",
        headers: { authorization: "both", tenant: "a" },
        protocol: "http/protobuf",
        timeoutMs: 500,
      },
      {
        url: "http://localhost:4318/v1/metrics",
        headers: { authorization: "metrics", tenant: "a" },
        protocol: "http/protobuf",
        timeoutMs: 10_000,
      },
    ],
  ],
  [collector, ({ telemetry }) => [telemetry?.continuesTraces, telemetry?.warnings], [true, []]],
  [{ ...collector, OTEL_PROPAGATORS: "none" }, ({ telemetry }) => telemetry?.continuesTraces, false],
  [{ ...collector, OTEL_PROPAGATORS: "none" }, ({ telemetry }) => telemetry?.warnings, []],
  [
    { ...collector, OTEL_PROPAGATORS: " b3multi, tracecontext, xray," },
    ({ telemetry }) => [telemetry?.continuesTraces, telemetry?.warnings],
    [true, [expect.stringMatching(/^OTEL_PROPAGATORS has b3multi, xray, but .* \(tracecontext\) only\.$/)]],
  ],
  [{ ...collector, OTEL_LOGS_EXPORTER: "none" }, ({ telemetry }) => telemetry?.warnings, []],
  [
    { ...collector, OTEL_LOGS_EXPORTER: "none", OTEL_EXPORTER_OTLP_LOGS_PROTOCOL: "grpc" },
    ({ telemetry }) => telemetry?.warnings,
    [],
  ],
  [
    { ...collector, OTEL_LOGS_EXPORTER: "otlp" },
    ({ telemetry }) => telemetry?.warnings,
    [expect.stringMatching(/^OTEL_LOGS_EXPORTER is otlp, but logs are not sent/)],
  ],
  [
    { ...collector, OTEL_EXPORTER_OTLP_LOGS_PROTOCOL: "grpc" },
    ({ telemetry }) => telemetry?.warnings,
    [expect.stringMatching(/^OTEL_EXPORTER_OTLP_LOGS_PROTOCOL is grpc, but logs are not sent/)],
  ],
  [{ PORT: "0" }, (config) => config.port, 0],
  [{ PORT: " " }, (config) => config.port, 8000],
  [{}, (config) => config.engine.maxNumBatchedTokens, 512],
  [{ DEVICE: "cuda" }, (config) => config.engine.maxNumBatchedTokens, 1024],
  [{ DEVICE: "cuda", MAX_NUM_SEQS: "1000" }, (config) => config.engine.maxNumBatchedTokens, 1024],
  [{ DEVICE: "cuda", MAX_NUM_BATCHED_TOKENS: "64" }, (config) => config.engine.maxNumBatchedTokens, 64],
  [
    { JOB_SOURCE: "amqp://rabbit/v?queue=jobs", JOB_SOURCE_USERNAME: "me", JOB_SOURCE_PASSWORD: "a/b@c" },
    (config) => config.jobs.source,
    "amqp://me:a%2Fb%40c@rabbit/v?queue=jobs",
  ],
  [
    { JOB_SOURCE: "redis://:old@redis:6379?queue=jobs", JOB_SOURCE_PASSWORD: "new" },
    (config) => config.jobs.source,
    "redis://:new@redis:6379?queue=jobs",
  ],
  [{ MODEL: "s3://bucket/models/tiny/" }, (config) => config.servedModelNames, ["tiny"]],
  [{ MODEL: "gs://bucket/models/tiny/" }, (config) => config.servedModelNames, ["tiny"]],
  [{ MODEL: "az://container/models/tiny" }, (config) => config.engine.model, "az://container/models/tiny"],
  [{ MODEL: "./models/x" }, (config) => config.engine.model, resolve("models/x")],
  [{ MODEL: "models/fovea-shapes" }, (config) => config.engine.model, resolve("models/fovea-shapes")],
  [{ MODEL: "models/fovea-shapes" }, (config) => config.servedModelNames, ["fovea-shapes"]],
  [{ MODEL: "Qwen/Qwen2.5-VL-3B-Instruct" }, (config) => config.engine.model, "Qwen/Qwen2.5-VL-3B-Instruct"],
  [{ MODEL: "hf://org/name@refs/pr/1" }, (config) => config.servedModelNames, ["org/name"]],
  [{ XDG_CACHE_HOME: "/cache" }, (config) => config.engine.hub.cacheFolder, "/cache/huggingface/hub"],
  [{ HF_HOME: "/h", XDG_CACHE_HOME: "/cache" }, (config) => config.engine.hub.tokenFile, "/h/token"],
  [{ HF_HUB_CACHE: "/c", HF_HOME: "/h" }, (config) => config.engine.hub.cacheFolder, "/c"],
  [{ HF_HUB_OFFLINE: "1" }, (config) => config.engine.hub.isOffline, true],
  [{ SERVED_MODEL_NAME: "a, b" }, (config) => config.servedModelNames, ["a", "b"]],
  [
    { MODEL: "org/base", LORA_MODULES: "one=org/adapter, two=hf://org/other@v1 three=s3://bucket/a=b" },
    (config) => [config.servedModelNames, config.engine.loraModules],
    [
      ["org/base", "one", "two", "three"],
      [
        { name: "one", path: "org/adapter" },
        { name: "two", path: "hf://org/other@v1" },
        { name: "three", path: "s3://bucket/a=b" },
      ],
    ],
  ],
  [
    { LORA_MODULES: '[{"name": "one", "path": "./adapters/x", "base_model_name": "org/base"}]' },
    (config) => config.engine.loraModules,
    [{ name: "one", path: resolve("adapters/x") }],
  ],
  [
    { LORA_MODULES: '{"name": "one", "path": "org/a"}' },
    (config) => config.engine.loraModules,
    [{ name: "one", path: "org/a" }],
  ],
  [{ LORA_MODULES: "" }, (config) => config.engine.loraModules, []],
  [
    { MODEL: "org/base", LORA_MODULES: "one=org/adapter", DEFAULT_MM_LORAS: '{"image": "org/vision"}' },
    (config) => [config.servedModelNames, config.engine.loraModules],
    [
      ["org/base", "one", "image"],
      [
        { name: "one", path: "org/adapter" },
        { name: "image", path: "org/vision", isDefaultForImages: true },
      ],
    ],
  ],
  [{ DTYPE: "INT8" }, (config) => config.engine.dtype, "int8"],
  [{ API_KEY: "one,two" }, (config) => config.apiKeys, ["one", "two"]],
  [{ SHUTDOWN_GRACE_SECONDS: "0.5" }, (config) => config.shutdownGraceMs, 500],
  [{ MAX_BODY_BYTES: "2MiB" }, (config) => config.maxBodyBytes, 2 * 1024 ** 2],
  [{ MAX_BODY_BYTES: "2048" }, (config) => config.maxBodyBytes, 2048],
  [{}, (config) => config.bodyIdleTimeoutMs, 10_000],
  [{ BODY_IDLE_TIMEOUT_SECONDS: "2.5" }, (config) => config.bodyIdleTimeoutMs, 2500],
  [{ LIMIT_MM_PER_PROMPT: '{"image": 3}' }, (config) => config.engine.imageLimits.maxImagesPerPrompt, 3],
  [{ LIMIT_MM_PER_PROMPT: '{"image": {"count": 4}, "video": 0}' }, (c) => c.engine.imageLimits.maxImagesPerPrompt, 4],
  [{ LIMIT_MM_PER_PROMPT: '{"video": 1}' }, (config) => config.engine.imageLimits.maxImagesPerPrompt, 16],
  [{ LIMIT_MM_PER_PROMPT: '{"image": 4}' }, (config) => config.engine.videoLimits.maxVideosPerPrompt, 1],
  [{ LIMIT_MM_PER_PROMPT: '{"video": 3}' }, (config) => config.engine.videoLimits.maxVideosPerPrompt, 3],
  [
    { LIMIT_MM_PER_PROMPT: '{"video": {"count": 2, "num_frames": 16, "width": 512, "height": 512}}' },
    (config) => config.engine.videoLimits.maxVideosPerPrompt,
    2,
  ],
  [
    { LIMIT_MM_PER_PROMPT: "image=2, video=4" },
    ({ engine }) => [engine.imageLimits.maxImagesPerPrompt, engine.videoLimits.maxVideosPerPrompt],
    [2, 4],
  ],
  [
    {
      MAX_VIDEO_BYTES: "8MiB",
      MAX_VIDEO_FRAMES: "64",
      VIDEO_NUM_FRAMES: "12",
      VIDEO_DECODE_TIMEOUT_SECONDS: "2.5",
      VIDEO_FETCH_TIMEOUT_SECONDS: "60",
      LIMIT_MM_PER_PROMPT: '{"video": 0}',
    },
    (config) => config.engine.videoLimits,
    {
      maxVideosPerPrompt: 0,
      maxVideoBytes: 8 * 1024 ** 2,
      maxVideoFrames: 64,
      numFrames: 12,
      videoDecodeTimeoutMs: 2500,
      fetchTimeoutMs: 60_000,
    },
  ],
  [
    { LIMIT_MM_PER_PROMPT: '{"image": {"count": 5, "width": 512, "height": 384}}' },
    (config) => config.engine.imageLimits.largestExpectedImage,
    { width: 512, height: 384 },
  ],
  [{ LIMIT_MM_PER_PROMPT: '{"image": {"width": 512}}' }, (c) => c.engine.imageLimits.maxImagesPerPrompt, 16],
  [{}, (config) => config.videoSampling, {}],
  [{ MEDIA_IO_KWARGS: '{"video": {"num_frames": 16}}' }, (config) => config.videoSampling, { numFrames: 16 }],
  [
    { MEDIA_IO_KWARGS: '{"video": {"num_frames": -1}}', MAX_VIDEO_FRAMES: "40" },
    (config) => config.videoSampling,
    { numFrames: 40 },
  ],
  [
    { MEDIA_IO_KWARGS: '{"video": {"num_frames": -1, "fps": 0.5}, "image": {"image_mode": "RGB"}, "audio": {}}' },
    (config) => config.videoSampling,
    { framesPerSecond: 0.5 },
  ],
  [{ MEDIA_IO_KWARGS: '{"video": {"num_frames": 8, "fps": -1}}' }, (config) => config.videoSampling, { numFrames: 8 }],
  [{ ALLOWED_ORIGINS: "https://a.example, http://b.example:8080" }, (config) => config.allowedOrigins.length, 2],
  [{ MODEL_DEFINITIONS: "a.b:c, ./d.ts:e" }, (c) => c.engine.modelDefinitions, ["a.b:c", "./d.ts:e"]],
  [{ LIMIT_MM_PER_PROMPT: "image=0" }, (config) => config.engine.imageLimits.maxImagesPerPrompt, 0],
  [{ LIMIT_MM_PER_PROMPT: "image=0" }, (config) => config.engine.videoLimits.maxVideosPerPrompt, 0],
  [{ LIMIT_MM_PER_PROMPT: "image=0,video=2" }, (config) => config.engine.videoLimits.maxVideosPerPrompt, 2],
  [{ XDG_CACHE_HOME: "/cache" }, (config) => config.engine.cacheFolder, "/cache/fovea"],
  [{ CACHE_FOLDER: "/c", XDG_CACHE_HOME: "/cache" }, (config) => config.engine.cacheFolder, "/c"],
  [{ RUNPOD_ENDPOINT_ID: "abc" }, (config) => config.pingStatusWhileStarting, 204],
  [{ RUNPOD_ENDPOINT_ID: "abc", HEALTH_INITIALIZING_CODE: "503" }, (config) => config.pingStatusWhileStarting, 503],
  [
    { LOGITS_PROCESSORS: "a.b:C, d:E.F\n./x.ts:G" },
    (config) => config.engine.logitsProcessors.map(({ className }) => className),
    ["a.b:C", "d:E.F", "./x.ts:G"],
  ],
  [
    { LOGITS_PROCESSORS: '["a:B", {"class": "c:D", "options": {"k": 1}}]' },
    (config) => config.engine.logitsProcessors,
    [
      { className: "a:B", options: {} },
      { className: "c:D", options: { k: 1 } },
    ],
  ],
  [{ LOGITS_PROCESSOR_DEFAULT_ARGS: '{"a": [1, "b"]}' }, (config) => config.defaultExtraArguments, { a: [1, "b"] }],
  [{ LOGITS_PROCESSOR_PATH: "/a:b" }, (config) => config.engine.logitsProcessorPath, ["/a", resolve("b")]],
  [{ REDIS_URL: "rediss://:pw@cache:6380/2" }, (config) => config.redisUrl, "rediss://:pw@cache:6380/2"],
  [
    { MM_PROCESSOR_CACHE_GB: "1.5", PROCESSOR_CACHE_TTL_SECONDS: "60", REDIS_KEY_PREFIX: "blue" },
    (config) => config.engine.caches,
    {
      maxMemoryBytes: 1.5 * 1024 ** 3,
      timeToLiveSeconds: 60,
      maxValueBytes: 32 * 1024 ** 2,
      commandTimeoutMs: 50,
      keyPrefix: "blue",
    },
  ],
  [{ MM_PROCESSOR_CACHE_GB: "0" }, (config) => config.engine.caches?.maxMemoryBytes, 0],
  [
    { MAX_IMAGE_DECODE_COST: "1000000", MAX_REQUEST_DECODE_COST: "2000000", IMAGE_DECODE_TIMEOUT_SECONDS: "3" },
    ({ engine: { imageLimits } }) => [
      imageLimits.maxDecodeCost,
      imageLimits.maxRequestDecodeCost,
      imageLimits.decodeTimeoutMs,
    ],
    [1_000_000, 2_000_000, 3_000],
  ],
  [{}, ({ engine: { imageLimits } }) => ({ ...imageLimits }), expect.objectContaining(defaultDecodeLimits)],
  [{ GPU_MEMORY_UTILIZATION: "0.55" }, (config) => config.engine.gpuMemoryUtilization, 0.55],
  [{}, (config) => config.engine.gpuMemoryUtilization, 0.9],
  [{ NUM_GPU_BLOCKS_OVERRIDE: "77" }, (config) => config.engine.numBlocks, 77],
  [{}, (config) => config.engine.numBlocks ?? null, null],
  [{ ENFORCE_EAGER: "true" }, (config) => config.engine.enforceEager, true],
  [{}, (config) => config.engine.enforceEager, false],
  [{ KV_LAYOUT: "paged", BLOCK_SIZE: "32" }, ({ engine }) => [engine.kvLayout, engine.blockSize], ["paged", 32]],
  [{ ENABLE_MM_EMBEDS: "true" }, (config) => config.engine.enableMmEmbeds, true],
  [
    { MM_PROCESSOR_KWARGS: '{"size": {"height": 8}}' },
    (config) => config.engine.mmProcessorOptions,
    { size: { height: 8 } },
  ],
  [{}, (config) => config.engine.speculativeConfig, null],
  [
    { SPECULATIVE_CONFIG: '{"method": "ngram", "num_speculative_tokens": 4}' },
    (config) => config.engine.speculativeConfig,
    { method: "ngram", numSpeculativeTokens: 4, promptLookupMax: 4, promptLookupMin: 2 },
  ],
  [
    { SPECULATIVE_CONFIG: '{"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 1}' },
    (config) => config.engine.speculativeConfig,
    { method: "ngram", numSpeculativeTokens: 8, promptLookupMax: 1, promptLookupMin: 1 },
  ],
  [
    { SPECULATIVE_CONFIG: '{"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 5}' },
    (config) => config.engine.speculativeConfig,
    { method: "ngram", numSpeculativeTokens: 2, promptLookupMax: 5, promptLookupMin: 5 },
  ],
  [{ AWS_ENDPOINT_URL: "http://one:9000" }, (config) => config.s3.endpoint, "http://one:9000"],
  [
    { AWS_ENDPOINT_URL: "http://one:9000", AWS_ENDPOINT_URL_S3: "http://two:9000" },
    (config) => config.s3.endpoint,
    "http://two:9000",
  ],
])("%o is parsed", ([environment, read, expected]) => {
  expect(read(loadConfig(environment))).toEqual(expected);
});

test.for<[string, string, RegExp]>([
  ["PORT", "80a", /^PORT is "80a": expected an integer from 0 to 65535\.$/],
  ["PORT", "70000", /expected an integer from 0 to 65535/],
  ["PORT", "8e3", /expected an integer/],
  ["MAX_NUM_SEQS", "0", /expected an integer from 1 to 4096/],
  ["MAX_MODEL_LEN", "1", /expected an integer of at least 2 tokens/],
  ["MAX_NUM_SEQS", "-3", /expected an integer/],
  ["MAX_NUM_BATCHED_TOKENS", "8", /expected at least MAX_NUM_SEQS, which is 32/],
  ["DTYPE", "int5", /expected one of auto, float32, bfloat16, float16, int8, int4/],
  ["LORA_MODULES", "org/adapter", /expected up to 64 adapters as name=reference, \.\.\. or \[\{"name"/],
  ["LORA_MODULES", "one=org/a,one=org/b", /expected up to 64 adapters/],
  ["LORA_MODULES", "one=", /expected up to 64 adapters/],
  ["LORA_MODULES", "=org/a", /expected up to 64 adapters/],
  ["LORA_MODULES", '[{"name": "a b", "path": "org/a"}]', /expected up to 64 adapters/],
  ["LORA_MODULES", '[{"name": "one", "path": "https://host/a"}]', /expected up to 64 adapters/],
  ["DEFAULT_MM_LORAS", "org/vision", /expected \{"image": reference\}/],
  ["DEFAULT_MM_LORAS", '{"image": ""}', /expected \{"image": reference\}/],
  ["DEFAULT_MM_LORAS", '{"audio": "org/speech"}', /expected .* there are no adapters for other modalities/],
  ["LORA_MODULES", "[{", /expected up to 64 adapters/],
  ["LORA_MODULES", Array.from({ length: 65 }, (_, index) => `a${index}=org/a`).join(), /expected up to 64 adapters/],
  ["LORA_MODULES", "fovea-shapes=org/a", /has an adapter fovea-shapes, and the model has that name, too/],
  ["DEVICE", "tpu", /expected one of cpu, cuda, webgpu/],
  ["MODEL", "s3://bucket", /expected the folder of a checkpoint, org\/name or hf:/],
  ["MODEL", "gs://", /gs:\/\/bucket\/prefix or az:\/\/container\/prefix/],
  ["MODEL", "https://account.blob.core.windows.net/container/prefix", /az:\/\/container\/prefix/],
  ["MODEL", "https://host/model", /expected the folder of a checkpoint, org\/name or hf:/],
  ["MODEL", "hf://org/name@../outside", /expected the folder of a checkpoint, org\/name or hf:/],
  ["SHUTDOWN_GRACE_SECONDS", "soon", /expected a number of seconds from 0 to 86400/],
  ["MAX_BODY_BYTES", "32XB", /expected a size from 1KiB to 1GiB, such as 1048576 or 1MiB\.$/],
  ["LIMIT_MM_PER_PROMPT", '{"image": {"count": 4, "size": 512}}', /expected {"image": N, "video": N}/],
  ["LIMIT_MM_PER_PROMPT", '{"image": {"width": 0}}', /expected {"image": N, "video": N}/],
  ["LIMIT_MM_PER_PROMPT", '{"image": 1001}', /expected {"image": N, "video": N}/],
  ["MAX_IMAGE_DECODE_COST", "1", /expected an integer of at least 65536/],
  [
    "ENABLE_MM_EMBEDS",
    "enabled",
    /^ENABLE_MM_EMBEDS is "enabled": expected one of true, false, 1, 0, yes, no, on, off\.$/,
  ],
  ["ALLOW_HTTP_IMAGES", "2", /expected one of true, false, 1, 0, yes, no, on, off\.$/],
  ["MM_PROCESSOR_KWARGS", "[1]", /expected a JSON object such as/],
  ["LIMIT_MM_PER_PROMPT", "image=4,sound=1", /expected {"image": N, "video": N}/],
  ["LIMIT_MM_PER_PROMPT", '{"video": {"count": 1, "frames": 4}}', /expected {"image": N, "video": N}/],
  ["MEDIA_IO_KWARGS", '{"video": {"num_frames": 8, "fps": 2}}', /not more than one of the two/],
  ["MEDIA_IO_KWARGS", '{"video": {"frames": 8}}', /expected a JSON object such as/],
  ["MEDIA_IO_KWARGS", '{"image": {"image_mode": "L"}}', /expected a JSON object such as/],
  ["MAX_VIDEO_FRAMES", "0", /expected an integer from 1 to 65536 frames/],
  ["LIMIT_MM_PER_PROMPT", "4", /expected {"image": N, "video": N}/],
  ["LIMIT_MM_PER_PROMPT", '{"images": 4}', /expected {"image": N, "video": N}/],
  ["MODEL_DEFINITIONS", "acme_vl", /expected module:export names separated by commas/],
  ["ALLOWED_ORIGINS", "https://a.example/", /expected origins such as/],
  [
    "SPECULATIVE_CONFIG",
    '{"method": "eagle", "num_speculative_tokens": 4}',
    /^SPECULATIVE_CONFIG is .*eagle.* with no other method than ngram/,
  ],
  ["SPECULATIVE_CONFIG", '{"method": "ngram"}', /"num_speculative_tokens": 4/],
  ["SPECULATIVE_CONFIG", '{"method": "ngram", "num_speculative_tokens": 17}', /1 to 16 tokens/],
  [
    "SPECULATIVE_CONFIG",
    '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 2, "prompt_lookup_min": 3}',
    /the minimum at most the maximum/,
  ],
  ["LOGITS_PROCESSORS", "[5]", /expected module:Export names/],
  ["LOGITS_PROCESSORS", '{"class": "a:B"}', /expected module:Export names .* or a JSON array/],
  ["DTYPE", "x".repeat(81), /^DTYPE is "x{80}…": expected one of/],
  ["DTYPE", "x".repeat(80), /^DTYPE is "x{80}": expected one of/],
  ["LOGITS_PROCESSORS", '[{"class": "a:B", "option": {}}]', /expected module:Export names/],
  ["LOGITS_PROCESSOR_DEFAULT_ARGS", "67", /expected a JSON object such as/],
  ["LOGITS_PROCESSOR_DEFAULT_ARGS", '{"a": null}', /expected a JSON object such as/],
  ["LOGITS_PROCESSORS", '[{"name": "a:B"}]', /expected module:Export names/],
  ["LOGITS_PROCESSORS", "[broken", /expected module:Export names/],
  ["ALLOWED_PRIVATE_HOSTS", "minio", /expected host:port entries/],
  ["AWS_ENDPOINT_URL_S3", "minio:9000", /expected an http:\/\/ or https:\/\/ URL/],
  ["REDIS_URL", "cache:6379", /^REDIS_URL has a value that does not parse: expected a redis:/],
  ["REDIS_COMMAND_TIMEOUT_MS", "0", /expected an integer from 1 to 60000/],
  ["MM_PROCESSOR_CACHE_GB", "-1", /expected a number of GiB from 0 to 1024/],
  ["API_KEY", "", /^API_KEY is empty: expected one or more keys .* Leave the variable out to have none\.$/],
  ["ADMIN_KEY", " ", /^ADMIN_KEY is empty: expected one or more keys/],
  ["API_KEY", "secret,,other", /^API_KEY has a value that does not parse: expected one or more keys/],
  ["API_KEY", "one,two words", /^API_KEY has a value that does not parse: .* ASCII characters without spaces\.$/],
  ["ADMIN_KEY", "schlüssel", /^ADMIN_KEY has a value that does not parse: .* ASCII characters without spaces\.$/],
])("rejects %s=%j and says what is expected", ([name, value, expected]) => {
  expect(() => loadConfig({ [name]: value })).toThrow(expected);
});

test.for([
  ["true", true],
  ["1", true],
  ["YES", true],
  ["on", true],
  ["false", false],
  ["0", false],
  ["no", false],
  [" Off ", false],
] as const)("ENABLE_PREFIX_CACHING=%s is %s", ([text, value]) => {
  expect(loadConfig({ ENABLE_PREFIX_CACHING: text }).engine.enablePrefixCaching).toBe(value);
});

test("reports a conflict between settings together with the other problems", () => {
  const problems = problemsOf({ PORT: "x", MAX_NUM_BATCHED_TOKENS: "8", BATCH_MAX_NUM_SEQS: "64" });
  expect(problems.map((problem) => problem.split(" ", 1)[0])).toEqual([
    "PORT",
    "MAX_NUM_BATCHED_TOKENS",
    "BATCH_MAX_NUM_SEQS",
  ]);
});

test("copies of the model share a processor, not a GPU", () => {
  expect(loadConfig({ DATA_PARALLEL_SIZE: "4" }).engine.dataParallelSize).toBe(4);
  expect(problemsOf({ DATA_PARALLEL_SIZE: "4", DEVICE: "cuda" })).toEqual([
    "DATA_PARALLEL_SIZE is 4: expected 1 with DEVICE=cuda. Start a process for each GPU.",
  ]);
});

test("reports no conflict with a setting that does not parse", () => {
  expect(problemsOf({ MAX_NUM_SEQS: "x", BATCH_MAX_NUM_SEQS: "64" })).toHaveLength(1);
});

test("masks a password in a URL that does not parse", () => {
  expect(problemsOf({ AWS_ENDPOINT_URL_S3: "ftp://user:hunter2@minio:9000" })).toEqual([
    'AWS_ENDPOINT_URL_S3 is "ftp://********@minio:9000": expected an http:// or https:// URL.',
  ]);
});

test("masks a password that contains an @ as a whole", () => {
  expect(problemsOf({ AWS_ENDPOINT_URL_S3: "ftp://user:hunter@2@minio:9000" })).toEqual([
    'AWS_ENDPOINT_URL_S3 is "ftp://********@minio:9000": expected an http:// or https:// URL.',
  ]);
});

test("reports all problems at once, and no secret with them", () => {
  const problems = problemsOf({ PORT: "x", DTYPE: "y", API_KEY: "hunter2,,", MAX_NUM_SEQS: "4" });
  expect(problems.map((problem) => problem.split(" ", 1)[0])).toEqual(["PORT", "API_KEY", "DTYPE"]);
  expect(problems.join()).not.toContain("hunter2");
});

test("every setting has a description and a default that parses", () => {
  const defaults = settingDescriptions.map(({ name, defaultText }) => [name, defaultText ?? undefined] as const);
  expect(problemsOf(Object.fromEntries(defaults))).toEqual([]);
  expect(settingDescriptions.filter(({ description }) => !description.endsWith("."))).toEqual([]);
});

function problemsOf(environment: Environment): readonly string[] {
  try {
    loadConfig(environment);
    return [];
  } catch (error) {
    return (error as ConfigError).problems;
  }
}

describe("names close to a setting", () => {
  const ourNames = settingDescriptions.map(({ name }) => name);

  test.for([
    ["MAX_NUM_SEQ", "MAX_NUM_SEQS"],
    ["MAX_NUM_SEQUENCE", null],
    ["LOGIT_PROCESSORS", "LOGITS_PROCESSORS"],
    ["LOGITS_PROCESSOR", "LOGITS_PROCESSORS"],
    ["MAX_MODEL_LENGTH", "MAX_MODEL_LEN"],
    ["SERVED_MODEL_NAMES", "SERVED_MODEL_NAME"],
    ["API_KEYS", "API_KEY"],
    ["MODLE", "MODEL"],
    ["PROT", "PORT"],
    ["FOVEA_API_KEY", "API_KEY"],
    ["SHUTDOWN_GRACE_SECOND", "SHUTDOWN_GRACE_SECONDS"],
  ] as const)("reports %s as %s", ([found, meant]) => {
    expect(findNearNames({ [found]: "1" }, ourNames)).toEqual(meant === null ? [] : [{ found, meant }]);
  });

  test("reports nothing in an ordinary environment", () => {
    const usual =
      "PATH HOME HOSTNAME USER SHELL TERM LANG LC_ALL PWD OLDPWD SHLVL EDITOR PAGER MAIL LOGNAME TZ TMPDIR MODE POST HOSTS " +
      "NODE_ENV NODE_OPTIONS NODE_VERSION NPM_TOKEN CI GITHUB_TOKEN GITHUB_ACTIONS RUNNER_OS OPENAI_API_KEY HF_TOKEN " +
      "HF_HOME CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES CUDA_HOME LD_LIBRARY_PATH OMP_NUM_THREADS MKL_NUM_THREADS " +
      "KUBERNETES_SERVICE_HOST KUBERNETES_PORT REDIS_HOST REDIS_PORT REDIS_URL DATABASE_URL HTTP_PROXY NO_PROXY " +
      "AWS_DEFAULT_REGION AWS_ROLE_ARN AWS_WEB_IDENTITY_TOKEN_FILE AWS_EC2_METADATA_DISABLED AWS_CONFIG_FILE " +
      "RUNPOD_POD_ID RUNPOD_API_KEY K_SERVICE K_REVISION AIP_HTTP_PORT SAGEMAKER_BIND_TO_PORT WEBSITE_HOSTNAME " +
      "LOGGING_LEVEL DEBUG VIRTUAL_ENV XDG_CACHE_HOME XDG_RUNTIME_DIR SSH_AUTH_SOCK DISPLAY COLORTERM VLLM_API_KEY";
    const environment = Object.fromEntries(usual.split(" ").map((name) => [name, "x"]));
    expect(findNearNames(environment, ourNames)).toEqual([]);
    expect(findNearNames({ FOVEA_PORT: "tcp://10.0.0.1:80", FOVEA_SERVICE_HOST: "10.0.0.1" }, ourNames)).toEqual([]);
  });
});
