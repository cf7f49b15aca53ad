/**
 * Hugging Face's Inference Endpoints with a container of one's own: the body of
 * `POST https://api.endpoints.huggingface.cloud/v2/endpoint/NAMESPACE`.
 */
import { ConfigError } from "../functions/settings/setting.ts";
import {
  PORT,
  exceeded,
  gpuProblems,
  healthPaths,
  queueProblems,
  settingsOf,
  unusedFields,
} from "./deployment-target.ts";
import type { DeploymentTarget } from "./deployment-target.ts";
import type { Deployment, GpuName } from "./deployment.ts";

/** The time that a container has after SIGTERM is not documented; other platforms allow at least 10 s. */
const MAX_GRACE_SECONDS = 8;
/** Minutes without requests after which the last replica ends. */
const IDLE_MINUTES = 15;
/** The folder at which the platform mounts the repository. */
const repositoryFolder = "/repository";
const defaultRegion = "us-east-1";

const gpuTypes: Readonly<Partial<Record<GpuName, string>>> = {
  t4: "nvidia-t4",
  l4: "nvidia-l4",
  l40s: "nvidia-l40s",
  "a100-80gb": "nvidia-a100",
  h100: "nvidia-h100",
  h200: "nvidia-h200",
};
/** Sizes of CPU instances. */
const cpuSizes = [
  { cpu: 1, memoryGiB: 2, size: "x1" },
  { cpu: 2, memoryGiB: 4, size: "x2" },
  { cpu: 4, memoryGiB: 8, size: "x4" },
  { cpu: 8, memoryGiB: 16, size: "x8" },
  { cpu: 16, memoryGiB: 32, size: "x16" },
] as const;

export const huggingFace: DeploymentTarget = {
  name: "hugging-face",
  platformVariables: [],
  render(deployment) {
    const problems = problemsOf(deployment);
    if (problems.length > 0) throw new ConfigError(problems);
    return [{ path: "endpoint.json", text: `${JSON.stringify(endpoint(deployment), null, 2)}\n` }];
  },
};

function problemsOf(deployment: Deployment): string[] {
  const { device, repository, timeouts } = deployment;
  const problems = exceeded("Hugging Face", [
    ["timeouts.shutdownGraceSeconds", timeouts.shutdownGraceSeconds, MAX_GRACE_SECONDS, " s"],
  ]);
  if (device.kind === "cpu" && cpuSizeOf(deployment) === undefined) {
    problems.push("resources: Hugging Face has at most 16 CPUs and 32 GiB without a GPU.");
  }
  if (repository === null) {
    problems.push("repository: it is missing; Hugging Face expects the repository that it mounts, as owner/name.");
  }
  return [
    ...problems,
    ...gpuProblems("Hugging Face", deployment, gpuTypes),
    ...queueProblems("Hugging Face", deployment),
    ...unusedFields("Hugging Face", deployment, {
      s3Role: "has no AWS roles",
      secrets: "stores values of secrets only; leave them out here and add them to the endpoint's settings",
      asyncOutput: "has no asynchronous inference",
      modelImage: "mounts no images; it mounts repository",
    }),
  ];
}

function cpuSizeOf({ resources }: Deployment) {
  return cpuSizes.find(({ cpu, memoryGiB }) => cpu >= resources.cpu && memoryGiB >= resources.memoryGiB);
}

function endpoint(deployment: Deployment) {
  const { name, image, device, replicas, region, repository, timeouts } = deployment;
  const settings = settingsOf(deployment, timeouts.shutdownGraceSeconds ?? MAX_GRACE_SECONDS);
  return {
    name,
    // Callers need a token of Hugging Face.
    type: "protected",
    provider: { vendor: "aws", region: region ?? defaultRegion },
    compute: {
      ...(device.kind === "cpu"
        ? { accelerator: "cpu", instanceType: "intel-spr", instanceSize: cpuSizeOf(deployment)?.size }
        : { accelerator: "gpu", instanceType: gpuTypes[device.gpu], instanceSize: "x1" }),
      scaling: { minReplica: replicas.min, maxReplica: replicas.max, scaleToZeroTimeout: IDLE_MINUTES },
    },
    model: {
      repository,
      framework: "custom",
      task: "custom",
      image: { custom: { url: image, port: PORT, healthRoute: healthPaths.readiness } },
      env: { MODEL: repositoryFolder, ...settings },
    },
  };
}
