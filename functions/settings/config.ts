/**
 * All settings of the service as one tree of rows, whose shape is that of `Config`. Names are the upper-snake form of
 * vLLM's flags where it has one; settings of clouds have the clouds' own names.
 */
import { homedir, tmpdir } from "node:os";
import { basename, join } from "node:path";

import { defaultAzureConfig } from "../../engine/contract/default-azure-config.ts";
import { defaultBatchedTokens } from "../../engine/contract/default-limits.ts";
import { EngineError } from "../../engine/contract/errors.ts";
import type { ExtraArguments } from "../../engine/contract/extra-arguments.ts";
import type { VideoSampling } from "../../engine/contract/generation-request.ts";
import { parseModelReference } from "../../engine/contract/model-reference.ts";
import { noRepeatNgramsOf } from "../../engine/contract/no-repeat-ngram.ts";
import { numSpeculativeTokensOf } from "../../engine/contract/speculative-config.ts";
import { awsSdkSettings, s3Settings } from "./aws.ts";
import { azureSettings } from "./azure.ts";
import { batchSettings } from "./batches.ts";
import { redisUrlSetting } from "./caches.ts";
import { engineSettings } from "./engine.ts";
import { gcsSettings, googleLibrarySettings } from "./google.ts";
import { hubSettings } from "./hub.ts";
import { imageSourceSettings, inlineImagesSetting } from "./images.ts";
import { jobSettings } from "./jobs.ts";
import type { VideoOptions } from "./json-values.ts";
import { platformSettings } from "./platforms.ts";
import { serviceSettings } from "./service.ts";
import { ConfigError, readSettings, rowsOf } from "./setting.ts";
import type { Environment, NamesOf, ParsedValuesOf, SettingDescription, ValuesOf } from "./setting.ts";
import { telemetrySettings, toTelemetryConfig } from "./telemetry.ts";
import { videoSamplingSetting } from "./videos.ts";

const settings = {
  ...serviceSettings,
  platforms: platformSettings,
  engine: engineSettings,
  images: imageSourceSettings,
  inlineImages: inlineImagesSetting,
  videoOptions: videoSamplingSetting,
  redisUrl: redisUrlSetting,
  batches: batchSettings,
  jobs: jobSettings,
  s3: s3Settings,
  gcs: gcsSettings,
  azure: azureSettings,
  hub: hubSettings,
  telemetry: telemetrySettings,
};

const librarySettings = { ...awsSdkSettings, google: googleLibrarySettings };

export type SettingName = NamesOf<typeof settings> | NamesOf<typeof librarySettings>;

/** The settings by topic, in the order of `--help`. */
export const settingTopics: readonly { readonly topic: string; readonly rows: readonly SettingDescription[] }[] = [
  { topic: "Service", rows: rowsOf(serviceSettings) },
  { topic: "Model and engine", rows: rowsOf(engineSettings) },
  {
    topic: "Where images and videos come from",
    rows: rowsOf({ ...imageSourceSettings, inlineImages: inlineImagesSetting, videoOptions: videoSamplingSetting }),
  },
  { topic: "Redis, files and batches", rows: rowsOf({ redisUrl: redisUrlSetting, ...batchSettings }) },
  { topic: "Jobs from queues and events", rows: rowsOf(jobSettings) },
  { topic: "Hugging Face Hub", rows: rowsOf(hubSettings) },
  {
    topic: "S3, Google Cloud Storage and Azure",
    rows: rowsOf({ s3: s3Settings, gcs: gcsSettings, azure: azureSettings }),
  },
  { topic: "OpenTelemetry", rows: rowsOf(telemetrySettings) },
  { topic: "Set by platforms", rows: rowsOf(platformSettings) },
  { topic: "Read by other libraries", rows: rowsOf(librarySettings) },
];

export const settingDescriptions: readonly SettingDescription[] = settingTopics.flatMap(({ rows }) => rows);

/** The values of the settings, with those that follow from others. */
export type Config = ReturnType<typeof toConfig>;

/**
 * A name set to empty text counts as unset, except API_KEY.
 *
 * @throws ConfigError with a sentence for every problem.
 */
export function loadConfig(environment: Environment): Config {
  const { values, problems } = readSettings(settings, environment);
  const allProblems = [...problems, ...conflictsOf(values)];
  if (allProblems.length > 0) throw new ConfigError(allProblems);
  return toConfig(values as ValuesOf<typeof settings>, environment);
}

/** Values that do not go together. */
function conflictsOf({
  engine,
  batches,
  jobs,
  defaultExtraArguments,
  servedModelNames,
}: ParsedValuesOf<typeof settings>): string[] {
  const conflicts = refusalOfDefaults(defaultExtraArguments ?? {});
  const maxNumSequences = engine.maxNumSequences ?? Number.NaN;
  const maxNumBatchedTokens =
    engine.maxNumBatchedTokens === null && engine.device !== undefined
      ? defaultBatchedTokens(engine.device)
      : (engine.maxNumBatchedTokens ?? Number.NaN);
  const maxNumBatchSequences = batches.maxNumSequences ?? Number.NaN;
  if (maxNumBatchedTokens < maxNumSequences) {
    conflicts.push(
      `MAX_NUM_BATCHED_TOKENS is ${maxNumBatchedTokens}: expected at least MAX_NUM_SEQS, which is ${maxNumSequences}.`,
    );
  }
  const dataParallelSize = engine.dataParallelSize ?? 1;
  if (maxNumBatchSequences > dataParallelSize * maxNumSequences) {
    const times = dataParallelSize === 1 ? "" : ` DATA_PARALLEL_SIZE (${dataParallelSize}) times`;
    conflicts.push(
      `BATCH_MAX_NUM_SEQS is ${maxNumBatchSequences}: expected at most${times} MAX_NUM_SEQS, which is ${maxNumSequences}.`,
    );
  }
  if (engine.device !== undefined && engine.device !== "cpu" && dataParallelSize > 1) {
    conflicts.push(
      `DATA_PARALLEL_SIZE is ${dataParallelSize}: expected 1 with DEVICE=${engine.device}. Start a process for each GPU.`,
    );
  }
  const baseNames = servedModelNames ?? (engine.model === undefined ? [] : [nameOf(engine.model)]);
  const taken = engine.loraModules?.find(({ name }) => baseNames.includes(name));
  if (taken !== undefined) {
    conflicts.push(
      `LORA_MODULES has an adapter ${taken.name}, and the model has that name, too: rename one of them (SERVED_MODEL_NAME).`,
    );
  }
  const ofImages = engine.defaultMmLoras?.find(
    ({ name }) => baseNames.includes(name) || engine.loraModules?.some((module) => module.name === name),
  );
  if (ofImages !== undefined) {
    conflicts.push(
      `DEFAULT_MM_LORAS has an adapter ${ofImages.name}, and LORA_MODULES or the model has that name, too: rename the other one.`,
    );
  }
  // Everyone can get a token of a public issuer for any audience.
  if (typeof jobs.push.audience === "string" && jobs.push.senders?.length === 0) {
    conflicts.push(
      "JOB_PUSH_AUDIENCE is set without JOB_PUSH_SENDERS: name the e-mail addresses or subjects that may push events.",
    );
  }
  return conflicts;
}

/** Every request would be rejected for such a default. Arguments of loaded processors are checked after loading. */
function refusalOfDefaults(defaultExtraArguments: ExtraArguments): string[] {
  try {
    noRepeatNgramsOf(defaultExtraArguments);
    numSpeculativeTokensOf(defaultExtraArguments);
    return [];
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    return [`LOGITS_PROCESSOR_DEFAULT_ARGS: ${error.message}`];
  }
}

/** Adds the values that follow from others. */
function toConfig(
  {
    engine,
    batches,
    s3,
    gcs,
    azure,
    hub,
    telemetry,
    runpodEndpointId,
    platforms,
    videoOptions,
    ...service
  }: ValuesOf<typeof settings>,
  environment: Environment,
) {
  const { defaultMmLoras, ...ofEngine } = engine;
  const { perPrompt, ...imageLimits } = engine.imageLimits;
  const loraModules = [...engine.loraModules, ...defaultMmLoras];
  const { username, password, ...jobs } = service.jobs;
  const { image, video } = perPrompt;
  const { vertex, sageMakerPort, healthPort } = platforms;
  // The image sets PORT, so a platform that sets its own variable wins.
  const port = vertex.port ?? sageMakerPort ?? service.port;
  const baseNames = service.servedModelNames ?? [nameOf(engine.model)];
  return {
    ...service,
    port,
    /** Null if `port` answers health checks. */
    healthPort: healthPort === port ? null : healthPort,
    vertexRoutes: { health: vertex.healthRoute, predict: vertex.predictRoute },
    /** At least one; the first is the one that answers give. Those of adapters come last. */
    servedModelNames: [...baseNames, ...loraModules.map(({ name }) => name)],
    /** Of requests that do not say; empty for the checkpoint's. */
    videoSampling: toVideoSampling(videoOptions, engine.videoLimits.maxVideoFrames),
    // The page shows conversations.
    hasPlayground: service.hasPlayground && engine.runner === "generate",
    pingStatusWhileStarting: service.pingStatusWhileStarting ?? (runpodEndpointId === null ? 503 : 204),
    engine: {
      ...ofEngine,
      maxNumBatchedTokens: engine.maxNumBatchedTokens ?? defaultBatchedTokens(engine.device),
      loraModules,
      cacheFolder: engine.cacheFolder ?? defaultCacheFolder(environment),
      hub: {
        endpoint: hub.endpoint,
        token: hub.token,
        tokenFile: hub.tokenFile ?? join(hub.home ?? defaultHubHome(environment), "token"),
        isOffline: hub.isOffline,
        cacheFolder: hub.cacheFolder ?? join(hub.home ?? defaultHubHome(environment), "hub"),
      },
      gcsEmulatorUrl: gcs.emulatorUrl,
      azure: { ...azure, identity: { ...azure.identity, metadataUrl: defaultAzureConfig.identity.metadataUrl } },
      imageLimits: {
        ...imageLimits,
        maxImagesPerPrompt: image.count,
        ...((image.width ?? image.height) !== undefined && {
          largestExpectedImage: { width: image.width, height: image.height },
        }),
      },
      videoLimits: { ...engine.videoLimits, maxVideosPerPrompt: video.count },
    },
    batches: {
      ...batches,
      store: batches.store ?? ({ kind: "folder", folder: join(defaultDataFolder(environment), "batches") } as const),
      /** Prefix of every key of the queue in Redis. */
      queueKeyPrefix: engine.caches.keyPrefix,
    },
    jobs: { ...jobs, source: withCredentials(jobs.source, username, password) },
    telemetry: toTelemetryConfig(telemetry),
    s3: { endpoint: s3.endpoint ?? s3.endpointOfAllServices, region: s3.region },
  } as const;
}

function toVideoSampling({ num_frames: numFrames, fps }: VideoOptions, maxVideoFrames: number): VideoSampling {
  if (fps !== undefined) return { framesPerSecond: fps };
  if (numFrames === undefined) return {};
  return { numFrames: numFrames === -1 ? maxVideoFrames : numFrames };
}

function withCredentials(address: string | null, username: string | null, password: string | null): string | null {
  if (address === null) return null;
  const url = new URL(address);
  if (username !== null) url.username = encodeURIComponent(username);
  if (password !== null) url.password = encodeURIComponent(password);
  return username === null && password === null ? address : url.href;
}

/** The name that vLLM gives: that of the repository, with its organisation; otherwise the last part of the path. */
function nameOf(model: string): string {
  const reference = parseModelReference(model);
  return reference?.kind === "hub" ? reference.repository : basename(model);
}

/** As in huggingface_hub. */
function defaultHubHome(environment: Environment): string {
  if (environment.XDG_CACHE_HOME) return join(environment.XDG_CACHE_HOME, "huggingface");
  return inHome([".cache", "huggingface"], "huggingface-cache");
}

function defaultCacheFolder(environment: Environment): string {
  if (environment.XDG_CACHE_HOME) return join(environment.XDG_CACHE_HOME, "fovea");
  return inHome([".cache", "fovea"], "fovea-cache");
}

/** For files that only their users could make again. */
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
