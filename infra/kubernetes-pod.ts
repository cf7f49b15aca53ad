/** The pods of every platform on Kubernetes: their container, placement and labels. */
import type { IContainer, IPodSpec, IVolume } from "kubernetes-models/v1";
import { stringify } from "yaml";

import { containerCacheFolder, PORT, healthPaths, kubernetesValue, settingsOf } from "./deployment-target.ts";
import type { RenderedFile } from "./deployment-target.ts";
import { modelImageFolder } from "./deployment.ts";
import type { Deployment, GpuName } from "./deployment.ts";

const DEFAULT_GRACE_SECONDS = 45;
/** Time until every proxy knows that the pod is about to end. Requests that arrive meanwhile are served. */
const PRE_STOP_SECONDS = 5;
/** Time for the process to end after its requests. Then Kubernetes kills it. */
const EXIT_SECONDS = 10;

const STARTUP_PERIOD_SECONDS = 5;

/** Labels of NVIDIA's GPU feature discovery. */
const gpuProducts: Readonly<Record<GpuName, readonly string[]>> = {
  t4: ["Tesla-T4"],
  l4: ["NVIDIA-L4"],
  l40s: ["NVIDIA-L40S"],
  "rtx-4090": ["NVIDIA-GeForce-RTX-4090"],
  "rtx-pro-6000": ["NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"],
  "a100-80gb": ["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"],
  h100: ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe", "NVIDIA-H100-NVL"],
  h200: ["NVIDIA-H200", "NVIDIA-H200-NVL"],
};

export function toFile(name: string, object: unknown): RenderedFile {
  return { path: `${name}.yaml`, text: `---\n${stringify(object, { lineWidth: 0 })}` };
}

export function labels({ name }: Deployment) {
  return { "app.kubernetes.io/name": "fovea", "app.kubernetes.io/instance": name };
}

export function metadata(deployment: Deployment) {
  return { name: deployment.name, labels: labels(deployment) };
}

export function podSpec(deployment: Deployment) {
  const { name, s3Role } = deployment;
  return {
    ...(s3Role !== null && { serviceAccountName: name }),
    // EKS mounts the role's own token. The Kubernetes token is not needed.
    automountServiceAccountToken: false,
    ...placement(deployment),
    terminationGracePeriodSeconds: PRE_STOP_SECONDS + graceSeconds(deployment) + EXIT_SECONDS,
    securityContext: { runAsNonRoot: true, fsGroup: 65532, seccompProfile: { type: "RuntimeDefault" } },
    containers: [container(deployment)],
    volumes: podVolumes(deployment),
  } satisfies IPodSpec;
}

export function podVolumes({ resources, modelImage }: Deployment): IVolume[] {
  return [
    { name: "cache", emptyDir: { sizeLimit: `${resources.diskGiB}Gi` } },
    { name: "tmp", emptyDir: {} },
    ...(modelImage === null
      ? []
      : [{ name: "model", image: { reference: modelImage, pullPolicy: "IfNotPresent" as const } }]),
  ];
}

export function container(deployment: Deployment) {
  const { image, device, resources, timeouts, modelImage } = deployment;
  const { cpu, memoryGiB } = resources;
  const probe = (path: string) => ({ httpGet: { path, port: "http" }, timeoutSeconds: 2 });
  const gpu: Readonly<Record<string, string>> = device.kind === "cpu" ? {} : { "nvidia.com/gpu": "1" };
  return {
    name: "fovea",
    image,
    ...(deployment.worker && { args: ["worker"] }),
    ports: [{ name: "http", containerPort: PORT }],
    env: environment(deployment),
    resources: {
      requests: { cpu: String(cpu), memory: memory(memoryGiB), ...gpu },
      // No CPU limit: throttled threads of a step would all wait for the slowest.
      limits: { memory: memory(memoryGiB), ...gpu },
    },
    startupProbe: {
      ...probe(healthPaths.readiness),
      periodSeconds: STARTUP_PERIOD_SECONDS,
      failureThreshold: Math.ceil(timeouts.startupSeconds / STARTUP_PERIOD_SECONDS),
    },
    readinessProbe: { ...probe(healthPaths.readiness), periodSeconds: 5, failureThreshold: 2 },
    livenessProbe: { ...probe(healthPaths.liveness), periodSeconds: 10, failureThreshold: 3 },
    lifecycle: { preStop: { sleep: { seconds: PRE_STOP_SECONDS } } },
    securityContext: {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    },
    volumeMounts: [
      { name: "cache", mountPath: containerCacheFolder },
      { name: "tmp", mountPath: "/tmp" },
      ...(modelImage === null ? [] : [{ name: "model", mountPath: modelImageFolder, readOnly: true }]),
    ],
  } satisfies IContainer;
}

function environment(deployment: Deployment) {
  const settings = settingsOf(deployment, graceSeconds(deployment));
  return [
    ...Object.entries(settings).map(([name, value]) => ({ name, value: kubernetesValue(value) })),
    ...Object.entries(deployment.secrets).map(([name, secret]) => ({
      name,
      valueFrom: { secretKeyRef: { name: secret, key: name } },
    })),
  ];
}

/** Selects nodes with the requested GPU, tainted or not. */
function placement({ device }: Deployment): Pick<IPodSpec, "affinity" | "tolerations"> {
  if (device.kind === "cpu") return {};
  const isProduct = { key: "nvidia.com/gpu.product", operator: "In" as const, values: [...gpuProducts[device.gpu]] };
  return {
    affinity: {
      nodeAffinity: {
        requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [{ matchExpressions: [isProduct] }] },
      },
    },
    tolerations: [{ key: "nvidia.com/gpu", operator: "Exists", effect: "NoSchedule" }],
  };
}

export function graceSeconds({ timeouts }: Deployment): number {
  return timeouts.shutdownGraceSeconds ?? DEFAULT_GRACE_SECONDS;
}

/** Kubernetes rejects fractions with a unit that is not divisible. */
function memory(gibibytes: number): string {
  return Number.isInteger(gibibytes) ? `${gibibytes}Gi` : `${Math.round(gibibytes * 1024)}Mi`;
}
