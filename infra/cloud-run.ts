/** Cloud Run services, with or without a GPU, in the Knative form of `gcloud run services replace`. */
import type { IService } from "@kubernetes-models/knative/serving.knative.dev/v1";
import { stringify } from "yaml";

import { ConfigError } from "../functions/settings/setting.ts";
import { cloudRunJob } from "./cloud-run-job.ts";
import {
  PORT,
  exceeded,
  gpuProblems,
  healthPaths,
  queueProblems,
  secretNameProblems,
  unusedFields,
} from "./deployment-target.ts";
import type { DeploymentTarget, SecretNames } from "./deployment-target.ts";
import type { Deployment, GpuName } from "./deployment.ts";

/** The platform kills a container 10 s after SIGTERM. */
const MAX_GRACE_SECONDS = 8;
const maxStartupSeconds = { cpu: 600, gpu: 1800 } as const;
const MAX_REQUEST_SECONDS = 3600;
const MAX_CONCURRENCY = 1000;
/** Time limit of one attempt of a job; without a GPU it is the most that the description allows. */
const MAX_GPU_TASK_SECONDS = 3600;
const STARTUP_PERIOD_SECONDS = 10;

interface Accelerator {
  readonly accelerator: string;
  /** Cloud Run rejects less with this GPU. */
  readonly minCpu: number;
  readonly minMemoryGiB: number;
}

const accelerators: Readonly<Partial<Record<GpuName, Accelerator>>> = {
  l4: { accelerator: "nvidia-l4", minCpu: 4, minMemoryGiB: 16 },
  "rtx-pro-6000": { accelerator: "nvidia-rtx-pro-6000", minCpu: 20, minMemoryGiB: 80 },
};

/**
 * GiB of memory by number of CPUs without a GPU. Less than one CPU needs the first generation and time of CPU for
 * requests alone, which are not rendered. https://cloud.google.com/run/docs/configuring/services/cpu
 */
const memoryRanges: ReadonlyMap<number, readonly [min: number, max: number]> = new Map([
  [1, [0.5, 4]],
  [2, [0.5, 8]],
  [4, [2, 16]],
  [6, [4, 24]],
  [8, [4, 32]],
]);

/** Of Google's Secret Manager. */
const secretManagerNames: SecretNames = {
  pattern: /^[A-Za-z0-9_-]{1,255}$/,
  expected: "the name of a secret in Secret Manager: letters, digits, dashes and underscores",
};

export const cloudRun: DeploymentTarget = {
  name: "cloud-run",
  platformVariables: [],
  render(deployment) {
    const problems = [
      ...limitProblems(deployment),
      ...placementProblems(deployment),
      ...batchProblems(deployment),
      ...secretNameProblems(deployment, secretManagerNames),
      ...(deployment.worker ? workerProblems(deployment) : queueProblems("Cloud Run", deployment)),
      ...unusedFields(
        "Cloud Run",
        deployment,
        {
          s3Role: "has no AWS roles; list the secrets of a key pair under secrets",
          repository: "mounts no repository of Hugging Face",
          asyncOutput: "has no asynchronous inference",
          modelImage: "mounts no images; use s3:// or a folder of the image",
        },
        { runsBatches: true },
      ),
    ];
    if (problems.length > 0) throw new ConfigError(problems);
    const [path, object] = rendered(deployment);
    return [{ path, text: stringify(object, { lineWidth: 0 }) }];
  },
};

function rendered(deployment: Deployment): readonly [path: string, object: object] {
  const { batch, worker } = deployment;
  if (batch !== null)
    return ["job.yaml", cloudRunJob(deployment, batch, container(deployment), acceleratorOf(deployment))];
  return worker ? ["worker-pool.yaml", workerPool(deployment)] : ["service.yaml", service(deployment)];
}

function limitProblems({ device, concurrency, timeouts, batch }: Deployment): string[] {
  const maxStartup = maxStartupSeconds[device.kind === "cpu" ? "cpu" : "gpu"];
  return exceeded("Cloud Run", [
    ["timeouts.startupSeconds", timeouts.startupSeconds, maxStartup, " s"],
    ["timeouts.requestSeconds", timeouts.requestSeconds, MAX_REQUEST_SECONDS, " s"],
    ["timeouts.shutdownGraceSeconds", timeouts.shutdownGraceSeconds, MAX_GRACE_SECONDS, " s"],
    ["concurrency", concurrency, MAX_CONCURRENCY, ""],
    ["batch.timeoutSeconds", batch?.timeoutSeconds ?? null, device.kind === "cpu" ? null : MAX_GPU_TASK_SECONDS, " s"],
  ]);
}

/** A batch reads no queue. */
function batchProblems({ worker, batch }: Deployment): string[] {
  return worker && batch !== null ? ["batch: expected either a batch or worker: true, got both."] : [];
}

/** A worker pool has a fixed number of instances. */
function workerProblems({ replicas }: Deployment): string[] {
  if (replicas.min === replicas.max) return [];
  return [
    `replicas: Cloud Run does not scale worker pools, and nothing wakes one for a job; give min and max the same value, got ${replicas.min} and ${replicas.max}.`,
  ];
}

function placementProblems(deployment: Deployment): string[] {
  const { device, resources } = deployment;
  if (device.kind === "cpu") return cpuProblems(resources);
  const problems = gpuProblems("Cloud Run", deployment, accelerators);
  const accelerator = accelerators[device.gpu];
  if (accelerator === undefined) return problems;
  const { minCpu, minMemoryGiB } = accelerator;
  const { cpu, memoryGiB } = resources;
  if (cpu < minCpu) problems.push(`resources.cpu: expected at least ${minCpu} with ${device.gpu}, got ${cpu}.`);
  if (memoryGiB < minMemoryGiB) {
    problems.push(`resources.memoryGiB: expected at least ${minMemoryGiB} with ${device.gpu}, got ${memoryGiB}.`);
  }
  return problems;
}

function cpuProblems({ cpu, memoryGiB }: Deployment["resources"]): string[] {
  const range = memoryRanges.get(cpu);
  if (range === undefined) {
    return [`resources.cpu: Cloud Run has ${[...memoryRanges.keys()].join(", ")} CPUs without a GPU, got ${cpu}.`];
  }
  const [min, max] = range;
  if (memoryGiB >= min && memoryGiB <= max) return [];
  return [
    `resources.memoryGiB: expected ${min} to ${max} with ${cpu} ${cpu === 1 ? "CPU" : "CPUs"}, got ${memoryGiB}.`,
  ];
}

function acceleratorOf({ device }: Deployment): string | undefined {
  return device.kind === "cpu" ? undefined : accelerators[device.gpu]?.accelerator;
}

/** Instances that take jobs from a queue, and get no requests: `gcloud run worker-pools replace`. */
function workerPool(deployment: Deployment) {
  const accelerator = acceleratorOf(deployment);
  return {
    apiVersion: "run.googleapis.com/v1",
    kind: "WorkerPool",
    metadata: {
      name: deployment.name,
      annotations: {
        "run.googleapis.com/scalingMode": "manual",
        "run.googleapis.com/manualInstanceCount": String(deployment.replicas.max),
      },
    },
    spec: {
      template: {
        ...(accelerator !== undefined && {
          metadata: { annotations: { "run.googleapis.com/gpu-zonal-redundancy-disabled": "true" } },
        }),
        spec: {
          ...(accelerator !== undefined && { nodeSelector: { "run.googleapis.com/accelerator": accelerator } }),
          containers: [container(deployment)],
        },
      },
    },
  };
}

function service(deployment: Deployment) {
  const { name, replicas, concurrency, timeouts } = deployment;
  const accelerator = acceleratorOf(deployment);
  return {
    apiVersion: "serving.knative.dev/v1",
    kind: "Service",
    metadata: { name },
    spec: {
      template: {
        metadata: {
          annotations: {
            "autoscaling.knative.dev/minScale": String(replicas.min),
            "autoscaling.knative.dev/maxScale": String(replicas.max),
            "run.googleapis.com/execution-environment": "gen2",
            "run.googleapis.com/startup-cpu-boost": "true",
            // Between requests, the engine still releases memory and drains.
            "run.googleapis.com/cpu-throttling": "false",
            ...(accelerator !== undefined && { "run.googleapis.com/gpu-zonal-redundancy-disabled": "true" }),
          },
        },
        spec: {
          containerConcurrency: concurrency,
          timeoutSeconds: timeouts.requestSeconds,
          ...(accelerator !== undefined && { nodeSelector: { "run.googleapis.com/accelerator": accelerator } }),
          containers: [container(deployment)],
        },
      },
    },
  } satisfies IService;
}

function container(deployment: Deployment) {
  const { image, device, worker, batch, environment, secrets, resources, timeouts } = deployment;
  const { cpu, memoryGiB } = resources;
  const grace = timeouts.shutdownGraceSeconds ?? MAX_GRACE_SECONDS;
  return {
    name: "fovea",
    image,
    // The platform sets PORT to this, and rejects a PORT variable.
    ...(!worker && batch === null && { ports: [{ name: "http1", containerPort: PORT }] }),
    ...(worker && { args: ["worker"] }),
    // Unlike Kubernetes, Cloud Run expands no references in values: https://cloud.google.com/run/docs/reference/rest/v1/EnvVar
    env: [
      ...Object.entries({ ...environment, SHUTDOWN_GRACE_SECONDS: String(grace) }).map(([name, value]) => ({
        name,
        value,
      })),
      ...Object.entries(secrets).map(([name, secret]) => ({
        name,
        valueFrom: { secretKeyRef: { name: secret, key: "latest" } },
      })),
    ],
    resources: {
      limits: {
        cpu: String(cpu),
        memory: `${Math.ceil(memoryGiB * 1024)}Mi`,
        ...(device.kind !== "cpu" && { "nvidia.com/gpu": "1" }),
      },
    },
    // A batch opens no port.
    ...(batch === null && probes(timeouts.startupSeconds)),
  };
}

function probes(startupSeconds: number) {
  return {
    // Any status from 200 to 399 counts as ready, so /health is used: it answers 503 while the model loads.
    startupProbe: {
      httpGet: { path: healthPaths.readiness, port: PORT },
      periodSeconds: STARTUP_PERIOD_SECONDS,
      timeoutSeconds: 5,
      failureThreshold: Math.ceil(startupSeconds / STARTUP_PERIOD_SECONDS),
    },
    livenessProbe: {
      httpGet: { path: healthPaths.liveness, port: PORT },
      periodSeconds: 10,
      timeoutSeconds: 5,
      failureThreshold: 3,
    },
  };
}
