/**
 * Validates the settings of a deployment with the service's own schema, so that no manifest contains an invalid one.
 */
import { isAbsolute } from "node:path";

import { loadConfig, settingDescriptions } from "../functions/settings/config.ts";
import type { Config } from "../functions/settings/config.ts";
import { findNearNames } from "../functions/settings/near-names.ts";
import { ConfigError } from "../functions/settings/setting.ts";
import { isRemoteCheckpoint } from "../functions/settings/values.ts";

type Settings = Readonly<Record<string, string>>;

/** The field to use for settings that do not belong into `environment`. */
const placeOfSetting: Readonly<Record<string, string>> = {
  MODEL: "set model instead",
  DTYPE: "set dtype instead",
  DEVICE: "set device.kind instead",
  SHUTDOWN_GRACE_SECONDS: "set timeouts.shutdownGraceSeconds instead",
  IDENTITY_ENDPOINT: "the platform sets it",
  IDENTITY_HEADER: "the platform sets it",
  PORT: "the platform sets it",
  HOST: "the platform needs the service on all addresses, which are :: in a network of IPv6 only",
  HF_HOME: "the image sets it, and the platform mounts a disk there",
  HF_HUB_CACHE: "the image sets HF_HOME, and the platform mounts a disk there",
  CACHE_FOLDER: "the image sets it, and the platform mounts a disk there",
  HEALTH_INITIALIZING_CODE: "the platform sets it",
  AIP_HTTP_PORT: "the platform sets it",
  AIP_HEALTH_ROUTE: "the platform sets it",
  AIP_PREDICT_ROUTE: "the platform sets it",
  SAGEMAKER_BIND_TO_PORT: "the platform sets it",
  PORT_HEALTH: "the platform sets it",
  RUNPOD_ENDPOINT_ID: "the platform sets it",
  RUNPOD_WEBHOOK_GET_JOB: "the platform sets it",
  RUNPOD_WEBHOOK_POST_OUTPUT: "the platform sets it",
  RUNPOD_WEBHOOK_POST_STREAM: "the platform sets it",
  RUNPOD_WEBHOOK_PING: "the platform sets it",
  RUNPOD_AI_API_KEY: "the platform sets it",
  RUNPOD_POD_ID: "the platform sets it",
  RUNPOD_PING_INTERVAL: "the platform sets it",
};

const fieldOfSetting: Readonly<Record<string, string>> = { MODEL: "model", DTYPE: "dtype", DEVICE: "device.kind" };

export interface DeploymentSettings {
  readonly environment: Settings;
  readonly secrets: Settings;
  /** `environment` and the settings that come from other fields. */
  readonly settings: Settings;
}

/**
 * Returns the service's configuration for these settings. Throws ConfigError with every problem, each with the path of
 * its field.
 */
export function checkSettings({ environment, secrets, settings }: DeploymentSettings): Config {
  const problems = [
    ...Object.entries(environment).flatMap(([name, value]) => problemsOf("environment", name, value)),
    ...Object.keys(secrets).flatMap((name) => problemsOf("secrets", name, null)),
    ...Object.keys(secrets)
      .filter((name) => name in environment)
      .map((name) => `secrets.${name}: it is also in environment.`),
    ...modelProblems(settings.MODEL),
    ...batchStoreProblems(environment.BATCH_STORE),
  ];
  try {
    const config = loadConfig(settings);
    if (problems.length === 0) return config;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    problems.push(...error.problems.map(withPath));
  }
  throw new ConfigError(problems);
}

function problemsOf(field: "environment" | "secrets", name: string, value: string | null): string[] {
  const path = `${field}.${name}`;
  const setting = settingDescriptions.find((known) => known.name === name);
  if (setting === undefined) return [`${path}: there is no such setting${suggestion(name)}`];
  if (name === "HOST" && value === "::") return [];
  if (name in placeOfSetting) return [`${path}: ${placeOfSetting[name]}.`];
  if (field === "environment" && setting.isSecret)
    return [`${path}: it is secret; name a platform secret under secrets.`];
  if (value !== null && /:\/\/[^/\s]*:[^/\s]*@/.test(value)) return [`${path}: a password is not allowed here.`];
  return [];
}

/** A folder of the machine that renders is not a folder of the container. */
function modelProblems(model: string | undefined): string[] {
  const isPlaced = model === undefined || isRemoteCheckpoint(model) || isAbsolute(model);
  return isPlaced
    ? []
    : [
        `model: expected org/name of the hub, s3://, gs:// or az://, or an absolute path of a folder in the image, got ${model}.`,
      ];
}

/** Replicas share no disk, and lose their own when they end. */
function batchStoreProblems(store: string | undefined): string[] {
  const isShared = store === undefined || store === "none" || /^s3:\/\//i.test(store);
  return isShared ? [] : [`environment.BATCH_STORE: expected s3://bucket/prefix or none, got ${store}.`];
}

function withPath(problem: string): string {
  const name = /^[A-Z0-9_]+/.exec(problem)?.[0] ?? "";
  return `${fieldOfSetting[name] ?? `environment.${name}`}: ${problem}`;
}

function suggestion(name: string): string {
  const ourNames = settingDescriptions.map((setting) => setting.name);
  const [near] = findNearNames({ [name.toUpperCase()]: "" }, ourNames);
  const meant = ourNames.includes(name.toUpperCase()) ? name.toUpperCase() : near?.meant;
  return meant === undefined ? "." : `; did you mean ${meant}?`;
}
