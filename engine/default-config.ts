/** Checks the settings of an engine, and completes them with defaults. */
import { homedir, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";

import {
  chatTemplateContentFormats,
  deviceNames,
  documentContents,
  dtypeNames,
  kvCacheDtypeNames,
  kvLayoutNames,
  promptDtypeNames,
  runnerNames,
} from "./contract/config.ts";
import type {
  AzureConfig,
  AzureIdentityConfig,
  CacheConfig,
  DocumentLimits,
  EngineConfig,
  HubConfig,
  ImageLimits,
  VideoLimits,
} from "./contract/config.ts";
import { MAX_DATA_PARALLEL_SIZE } from "./contract/data-parallel.ts";
import { defaultAzureConfig } from "./contract/default-azure-config.ts";
import {
  defaultBatchedTokens,
  defaultCacheConfig,
  defaultEngineLimits,
  defaultDocumentLimits,
  defaultImageLimits,
  defaultVideoLimitsFor,
  dotsPerInchRange,
  MIN_MODEL_LEN,
} from "./contract/default-limits.ts";
import { EngineError } from "./contract/errors.ts";
import { speculativeLimits, speculativeMethods } from "./contract/speculative-config.ts";
import { givenReferences, toReference } from "./sampling/custom/given-processors.ts";
import type { GivenReference } from "./sampling/custom/given-processors.ts";
import { describeProblem, readBySchema } from "./schema-problem.ts";

type Optional<Settings> = { readonly [Name in keyof Settings]?: Settings[Name] | undefined };

/** Options of `createEngine`. Every setting has a default, which also replaces undefined. */
export interface EngineOptions extends Optional<
  Omit<EngineConfig, "imageLimits" | "videoLimits" | "documentLimits" | "caches" | "hub" | "azure" | "logitsProcessors">
> {
  /** Names `module:Export`, or such names with options. Classes are dependencies. */
  readonly logitsProcessors?: readonly GivenReference[] | undefined;
  readonly imageLimits?: Optional<ImageLimits> | undefined;
  readonly videoLimits?: Optional<VideoLimits> | undefined;
  readonly documentLimits?: Optional<DocumentLimits> | undefined;
  readonly caches?: Optional<CacheConfig> | undefined;
  readonly hub?: Optional<HubConfig> | undefined;
  readonly azure?: AzureOptions | undefined;
}

interface AzureOptions extends Optional<Omit<AzureConfig, "identity">> {
  readonly identity?: Optional<AzureIdentityConfig> | undefined;
}

/** Infinity is no limit. */
const limit = z.custom<number>((value) => typeof value === "number" && value >= 0, "a number of at least 0");
const flag = z.boolean();
const text = z.string();
const httpUrl = z.url({ protocol: /^https?$/, error: "an http:// or https:// URL" });
const texts = z.array(text);
const anyObject = z.looseObject({});
const count = (min: number, max: number = Number.MAX_SAFE_INTEGER): z.ZodInt => z.int().min(min).max(max);

/** In plain JavaScript, types catch neither a misspelled name nor a wrong value; and they know no ranges. */
const optionSchemas: Readonly<Record<keyof EngineConfig, z.ZodType>> = {
  model: text.min(1),
  loraAdapter: text.min(1).nullable(),
  loraModules: z
    .array(z.looseObject({ name: text.min(1), path: text.min(1), isDefaultForImages: flag.optional() }))
    .refine(
      (modules) => modules.filter(({ isDefaultForImages }) => isDefaultForImages === true).length <= 1,
      "adapters of which at most one has isDefaultForImages",
    ),
  runner: z.enum(runnerNames),
  classifierFromToken: z.array(text.min(1)).min(1).max(2).nullable(),
  dtype: z.enum(dtypeNames),
  device: z.enum(deviceNames),
  deviceId: count(0),
  dataParallelSize: count(1, MAX_DATA_PARALLEL_SIZE).nullable(),
  maxModelLen: count(MIN_MODEL_LEN).nullable(),
  maxNumSequences: count(1),
  kvLayout: z.enum(kvLayoutNames),
  promptDtype: z.enum(promptDtypeNames),
  kvCacheDtype: z.enum(kvCacheDtypeNames),
  blockSize: count(1).nullable(),
  numBlocks: count(2).nullable(),
  kvCacheMemoryBytes: limit.nullable(),
  enforceEager: flag,
  gpuMemoryUtilization: z.number().gt(0).max(1),
  maxNumBatchedTokens: count(1),
  maxNumWaiting: limit,
  stepTimeoutMs: limit,
  warmUp: flag,
  preload: flag,
  enablePrefixCaching: flag,
  speculativeConfig: z
    .strictObject({
      method: z.enum(speculativeMethods),
      numSpeculativeTokens: count(1, speculativeLimits.numSpeculativeTokens),
      promptLookupMax: count(1, speculativeLimits.promptLookup),
      promptLookupMin: count(1, speculativeLimits.promptLookup),
    })
    .refine(({ promptLookupMin, promptLookupMax }) => promptLookupMin <= promptLookupMax, {
      error: "at most promptLookupMax",
      path: ["promptLookupMin"],
    })
    .nullable(),
  logitsProcessors: givenReferences,
  logitsProcessorPath: texts,
  numThreads: count(1).nullable(),
  cacheFolder: text,
  hub: z.strictObject({
    endpoint: httpUrl.optional(),
    cacheFolder: text.optional(),
    token: text.nullish(),
    tokenFile: text.optional(),
    isOffline: flag.optional(),
  }),
  gcsEmulatorUrl: httpUrl.nullable(),
  azure: z.strictObject({
    accountName: text.nullish(),
    connectionString: text.nullish(),
    accountKey: text.nullish(),
    sasToken: text.nullish(),
    identity: z
      .strictObject({
        tenantId: text.nullish(),
        clientId: text.nullish(),
        clientSecret: text.nullish(),
        federatedTokenFile: text.nullish(),
        authorityHost: httpUrl.optional(),
        platformEndpoint: httpUrl.nullish(),
        platformSecret: text.nullish(),
        metadataUrl: httpUrl.optional(),
      })
      .optional(),
  }),
  videoLimits: z.strictObject({
    maxVideosPerPrompt: limit.optional(),
    maxVideoBytes: limit.optional(),
    maxVideoFrames: count(1).optional(),
    numFrames: count(1).optional(),
    fetchTimeoutMs: limit.optional(),
    videoDecodeTimeoutMs: limit.optional(),
  }),
  documentLimits: z.strictObject({
    maxDocumentBytes: limit.optional(),
    dotsPerInch: z.number().min(dotsPerInchRange.min).max(dotsPerInchRange.max).optional(),
    content: z.enum(documentContents).optional(),
    renderTimeoutMs: limit.optional(),
  }),
  imageLimits: z.strictObject({
    maxImagesPerPrompt: limit.optional(),
    largestExpectedImage: anyObject.optional(),
    maxImageBytes: limit.optional(),
    maxImagePixels: limit.optional(),
    maxDecodeCost: limit.optional(),
    maxRequestDecodeCost: limit.optional(),
    decodeTimeoutMs: limit.optional(),
    fetchTimeoutMs: limit.optional(),
    maxFetchedBytes: limit.optional(),
    maxProcessedBytes: limit.optional(),
  }),
  caches: z.strictObject({
    maxMemoryBytes: limit.optional(),
    timeToLiveSeconds: limit.optional(),
    maxValueBytes: limit.optional(),
    commandTimeoutMs: limit.optional(),
    keyPrefix: text.optional(),
  }),
  addAllImagesToPrompt: flag,
  enableMmEmbeds: flag,
  modelDefinitions: texts,
  modelDefinitionPath: texts,
  multimodalPipeline: text.nullable(),
  pipelinePath: texts,
  pipelineParams: anyObject,
  visionDtype: z.enum(dtypeNames).nullable(),
  visionDevice: z.enum(deviceNames).nullable(),
  projectorDtype: z.enum(dtypeNames).nullable(),
  projectorDevice: z.enum(deviceNames).nullable(),
  mmProcessorOptions: anyObject,
  chatTemplate: text.nullable(),
  chatTemplateContentFormat: z.enum(chatTemplateContentFormats),
};

function checkOptions(options: EngineOptions): void {
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue;
    if (!Object.hasOwn(optionSchemas, name)) {
      throw new EngineError("invalid_configuration", `createEngine has no option ${name}.`);
    }
    const result = readBySchema(optionSchemas[name as keyof EngineConfig], value);
    if (!result.isValid) {
      throw new EngineError("invalid_configuration", `The option ${describeProblem(result, name)}.`);
    }
  }
}

/**
 * Completes the options with the service's defaults: without a model, the small shipped checkpoint on the CPU. Settings
 * that are optional in `EngineConfig` get their defaults where they are used.
 *
 * @throws EngineError `invalid_configuration` for an unknown option and an invalid value.
 */
export function toEngineConfig(given: EngineOptions): EngineConfig {
  checkOptions(given);
  const {
    imageLimits = {},
    videoLimits = {},
    documentLimits = {},
    caches = {},
    hub = {},
    azure = {},
    logitsProcessors = [],
    ...options
  } = given;
  const ofImages = { ...defaultImageLimits, ...definedOf(imageLimits) };
  return {
    model: fileURLToPath(new URL("../models/fovea-shapes", import.meta.url)),
    dtype: "auto",
    device: "cpu",
    deviceId: 0,
    maxModelLen: null,
    ...defaultEngineLimits,
    maxNumBatchedTokens: defaultBatchedTokens(options.device ?? "cpu"),
    logitsProcessors: logitsProcessors.map(toReference),
    logitsProcessorPath: [resolve(".")],
    numThreads: null,
    cacheFolder: defaultCacheFolder("fovea", "fovea-cache"),
    hub: toHubConfig(hub),
    azure: toAzureConfig(azure),
    caches: { ...defaultCacheConfig, ...definedOf(caches) },
    ...definedOf(options),
    imageLimits: ofImages,
    videoLimits: { ...defaultVideoLimitsFor(ofImages), ...definedOf(videoLimits) },
    documentLimits: { ...defaultDocumentLimits, ...definedOf(documentLimits) },
  };
}

/** The fields that have a value. */
function definedOf<Settings extends object>(
  settings: Settings,
): { readonly [Name in keyof Settings]: Exclude<Settings[Name], undefined> } {
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined)) as never;
}

/** The defaults of huggingface_hub. */
function toHubConfig(hub: Optional<HubConfig>): HubConfig {
  const home = defaultCacheFolder("huggingface", "huggingface-cache");
  return {
    endpoint: "https://huggingface.co",
    cacheFolder: join(home, "hub"),
    token: null,
    tokenFile: join(home, "token"),
    isOffline: false,
    ...definedOf(hub),
  };
}

function toAzureConfig({ identity = {}, ...account }: AzureOptions): AzureConfig {
  return {
    ...defaultAzureConfig,
    ...definedOf(account),
    identity: { ...defaultAzureConfig.identity, ...definedOf(identity) },
  };
}

function defaultCacheFolder(name: string, temporaryName: string): string {
  try {
    return join(homedir(), ".cache", name);
  } catch {
    // A container may run as a user id without a home folder.
    return join(tmpdir(), temporaryName);
  }
}
