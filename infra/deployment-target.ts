/** The contract of a platform: a name, and a pure function from a deployment to files. */
import type { Deployment, GpuName } from "./deployment.ts";

export interface RenderedFile {
  /** Relative to the output folder. */
  readonly path: string;
  readonly text: string;
}

export interface DeploymentTarget {
  /** The value of `--platform`. */
  readonly name: string;
  /** Variables that the platform needs in addition to the settings. */
  readonly platformVariables: readonly string[];
  /** Throws ConfigError for unsupported fields, with their paths. */
  render(deployment: Deployment): readonly RenderedFile[];
}

/** The port on which the image listens. */
export const PORT = 8000;

/** Routes of `functions/api/routes/health.ts`. */
export const healthPaths = {
  /** 200 only if requests are served. */
  readiness: "/health",
  /** 200 unless only a restart helps. */
  liveness: "/livez",
  /** Like readiness, for platforms that distinguish "still starting" from "failed". */
  ping: "/ping",
} as const;

/** The folder of downloads and quantised weights; the image sets it as CACHE_FOLDER. */
export const containerCacheFolder = "/var/cache/fovea";

/** One problem for each exceeded limit; a `limit` of null means none. */
export function exceeded(
  platform: string,
  limits: readonly (readonly [field: string, value: number | null, limit: number | null, unit: string])[],
): string[] {
  return limits.flatMap(([field, value, limit, unit]) =>
    value === null || limit === null || value <= limit
      ? []
      : [`${field}: ${platform} allows at most ${limit}${unit}, got ${value}${unit}.`],
  );
}

/** A problem if the deployment's GPU is not among the keys of `gpus`, the platform's own names of what it offers. */
export function gpuProblems(
  platform: string,
  { device }: Deployment,
  gpus: Readonly<Partial<Record<GpuName, unknown>>>,
): string[] {
  if (device.kind === "cpu" || gpus[device.gpu] !== undefined) return [];
  return [`device.gpu: ${platform} has ${Object.keys(gpus).join(", ")}, not ${device.gpu}.`];
}

/** The settings of a container that has this long after SIGTERM. */
export function settingsOf({ environment }: Deployment, graceSeconds: number): Record<string, string> {
  return { ...environment, SHUTDOWN_GRACE_SECONDS: String(graceSeconds) };
}

/**
 * The text from which Kubernetes makes this value: it expands `$(NAME)` in values of variables, and `$$` becomes `$`.
 * https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
 */
export function kubernetesValue(value: string): string {
  return value.replaceAll(/\$(?=[$(])/g, "$$$$");
}

/** Whether replicas take jobs from a queue, whose address may be a secret. */
export function hasQueue({ config, secrets }: Deployment): boolean {
  return config.jobs.source !== null || "JOB_SOURCE" in secrets;
}

/**
 * One problem for each field that the platform has no place for. A batch is one of them unless `runsBatches`, and
 * RunPod's own queue unless `hasRunpodQueue`.
 */
export function unusedFields(
  platform: string,
  deployment: Deployment,
  rules: Partial<Record<"s3Role" | "repository" | "asyncOutput" | "modelImage" | "secrets", string>>,
  {
    runsBatches = false,
    hasRunpodQueue = false,
  }: { readonly runsBatches?: boolean; readonly hasRunpodQueue?: boolean } = {},
): string[] {
  const { secrets, batch, environment } = deployment;
  const ofBatch = batch === null || runsBatches ? [] : [`batch: only Cloud Run is rendered for it, not ${platform}.`];
  const ofQueue =
    environment.JOB_SOURCE !== "runpod" || hasRunpodQueue
      ? []
      : [
          "environment.JOB_SOURCE: runpod is for workers on RunPod alone (platform runpod, worker: true); name another queue.",
        ];
  const isGiven = (field: keyof typeof rules): boolean =>
    field === "secrets" ? Object.keys(secrets).length > 0 : deployment[field] !== null;
  const pathOf = (field: keyof typeof rules): string =>
    ({ modelImage: "model", secrets: `secrets.${Object.keys(secrets)[0]}` })[field as string] ?? field;
  return (Object.keys(rules) as (keyof typeof rules)[])
    .filter(isGiven)
    .map((field) => `${pathOf(field)}: ${platform} ${rules[field]}.`)
    .concat(ofBatch, ofQueue);
}

/** The names that a platform's store of secrets takes. */
export interface SecretNames {
  readonly pattern: RegExp;
  /** Completes "expected". */
  readonly expected: string;
}

/** https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names */
export const kubernetesSecretNames: SecretNames = {
  pattern: /^(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/,
  expected: "the name of a Kubernetes Secret: lower-case letters, digits, dashes and dots",
};

/** One problem for each secret whose name the platform rejects; without the name, which may be the secret itself. */
export function secretNameProblems({ secrets }: Deployment, { pattern, expected }: SecretNames): string[] {
  return Object.entries(secrets)
    .filter(([, secret]) => !pattern.test(secret))
    .map(([variable]) => `secrets.${variable}: expected ${expected}.`);
}

/** The smallest machine with this much; undefined if none is large enough. */
export function smallestMachine<Machine extends { readonly cpu: number; readonly memoryGiB: number }>(
  machines: readonly Machine[],
  { cpu, memoryGiB }: Deployment["resources"],
): Machine | undefined {
  return machines.find((machine) => machine.cpu >= cpu && machine.memoryGiB >= memoryGiB);
}

/** For platforms that count requests alone: a queue cannot wake a replica there. */
export function queueProblems(platform: string, deployment: Deployment): string[] {
  const { worker, replicas } = deployment;
  if (worker) return [`worker: ${platform} scales by requests, which workers do not serve.`];
  if (!hasQueue(deployment) || replicas.min > 0) return [];
  return [
    `replicas.min: ${platform} wakes replicas by requests alone, so jobs of JOB_SOURCE would wait; expected at least 1, got 0.`,
  ];
}
