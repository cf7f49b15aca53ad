/**
 * RunPod's endpoints: the body of `POST https://api.runpod.io/v2/serverless`, whose fields are those of the schema in
 * runpod/docs at a900806 of 2026-08-20. A load-balancing endpoint passes requests to the service unchanged; it probes a
 * route to decide whether to send any, and reads 204 as "still starting". Workers belong to a queue-based endpoint.
 */
import { ConfigError } from "../functions/settings/setting.ts";
import { PORT, exceeded, gpuProblems, healthPaths, queueProblems, unusedFields } from "./deployment-target.ts";
import type { DeploymentTarget } from "./deployment-target.ts";
import type { Deployment, GpuName } from "./deployment.ts";

/** The time that a container has after SIGTERM is not documented; other platforms allow at least 10 s. */
const MAX_GRACE_SECONDS = 8;
const MAX_REQUEST_SECONDS = 330;
/** Keeps a replica for the next question of a conversation, which would otherwise wait for a cold start. */
const IDLE_SECONDS = 60;
/** A job that waits longer adds a replica. */
const QUEUE_DELAY_SECONDS = 4;
/** The CUDA version of the image's libraries. Workers with an older driver could not load them. */
const minCudaVersion = "13.0";

/** Groups of similar GPUs, which are the unit of selection. */
const gpuPools: Readonly<Partial<Record<GpuName, string>>> = {
  l4: "AMPERE_24",
  l40s: "ADA_48_PRO",
  "rtx-4090": "ADA_24",
  "a100-80gb": "AMPERE_80",
  h100: "ADA_80_PRO",
  h200: "HOPPER_141",
};

export const runPod: DeploymentTarget = {
  name: "runpod",
  platformVariables: ["PORT_HEALTH", "HEALTH_CHECK_PATH"],
  render(deployment) {
    const problems = problemsOf(deployment);
    const pool = poolOf(deployment);
    if (pool === undefined || problems.length > 0) throw new ConfigError(problems);
    return [{ path: "endpoint.json", text: `${JSON.stringify(endpoint(deployment, pool), null, 2)}\n` }];
  },
};

function problemsOf(deployment: Deployment): string[] {
  const { device, timeouts } = deployment;
  const problems = exceeded("RunPod", [
    ["timeouts.requestSeconds", timeouts.requestSeconds, MAX_REQUEST_SECONDS, " s"],
    ["timeouts.shutdownGraceSeconds", timeouts.shutdownGraceSeconds, MAX_GRACE_SECONDS, " s"],
  ]);
  if (device.kind === "cpu") problems.push("device.kind: RunPod is supported only with GPUs, got cpu.");
  const isOwnQueue = deployment.worker && deployment.environment.JOB_SOURCE === "runpod";
  return [
    ...problems,
    ...gpuProblems("RunPod", deployment, gpuPools),
    ...(isOwnQueue ? [] : queueProblems("RunPod's load balancer", deployment)),
    ...unusedFields(
      "RunPod",
      deployment,
      {
        s3Role: "has no roles; list the secrets of a key pair under secrets",
        repository: "mounts no repository here; use s3:// or a folder of the image",
        asyncOutput: "has its own queue for results; set worker and JOB_SOURCE=runpod instead",
        modelImage: "mounts no images; use s3:// or a folder of the image",
      },
      { hasRunpodQueue: isOwnQueue },
    ),
  ];
}

function poolOf({ device }: Deployment): string | undefined {
  return device.kind === "cpu" ? undefined : gpuPools[device.gpu];
}

function endpoint(deployment: Deployment, pool: string) {
  const { name, image, device, resources, replicas, concurrency, timeouts, worker } = deployment;
  return {
    name,
    type: worker ? "QUEUE" : "LOAD_BALANCER",
    image,
    ...(worker && { args: "worker" }),
    disk: resources.diskGiB,
    ...(!worker && { ports: [`${PORT}/http`] }),
    env: environment(deployment),
    // CPU and memory come with the GPU.
    gpu: { pools: [pool], count: 1, ...(device.kind === "cuda" && { minCudaVersion: minCudaVersion }) },
    workers: { ...replicas, idleTimeout: IDLE_SECONDS },
    scaling: worker
      ? { type: "QUEUE_DELAY", queueDelay: QUEUE_DELAY_SECONDS }
      : { type: "REQUEST_COUNT", requestCount: concurrency },
    timeout: timeouts.requestSeconds * 1000,
    flashboot: "FLASHBOOT",
  };
}

function environment({ environment, secrets, timeouts }: Deployment): Record<string, string> {
  const references = Object.entries(secrets).map(([name, secret]) => [name, `{{ RUNPOD_SECRET_${secret} }}`] as const);
  return {
    ...environment,
    ...Object.fromEntries(references),
    SHUTDOWN_GRACE_SECONDS: String(timeouts.shutdownGraceSeconds ?? MAX_GRACE_SECONDS),
    PORT: String(PORT),
    PORT_HEALTH: String(PORT),
    HEALTH_CHECK_PATH: healthPaths.ping,
    HEALTH_INITIALIZING_CODE: "204",
  };
}
