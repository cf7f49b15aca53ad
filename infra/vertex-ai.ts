/**
 * Vertex AI: the bodies that upload a model and deploy it to an endpoint. `$PROJECT_ID` and `$REGION` in the second are
 * for `envsubst`, because a model is named by its whole path.
 */
import { ConfigError } from "../functions/settings/setting.ts";
import {
  PORT,
  exceeded,
  gpuProblems,
  healthPaths,
  kubernetesValue,
  queueProblems,
  settingsOf,
  smallestMachine,
  unusedFields,
} from "./deployment-target.ts";
import type { DeploymentTarget } from "./deployment-target.ts";
import type { Deployment, GpuName } from "./deployment.ts";

/** The time that a container has after SIGTERM is not documented; other platforms allow at least 10 s. */
const MAX_GRACE_SECONDS = 8;
const MAX_REQUEST_SECONDS = 600;
/** Of `deploymentTimeout`. */
const MAX_STARTUP_SECONDS = 7200;
const STARTUP_PERIOD_SECONDS = 10;
/** Percentage of time in which the device computes, above which a replica is added. */
const TARGET_DUTY = 70;

interface Machine {
  readonly machineType: string;
  readonly cpu: number;
  readonly memoryGiB: number;
}

interface GpuMachines {
  readonly accelerator: string;
  /** With one GPU, the smallest first. */
  readonly machines: readonly Machine[];
}

const machine = (machineType: string, cpu: number, memoryGiB: number): Machine => ({ machineType, cpu, memoryGiB });

const gpuMachines: Readonly<Partial<Record<GpuName, GpuMachines>>> = {
  t4: {
    accelerator: "NVIDIA_TESLA_T4",
    machines: [machine("n1-standard-4", 4, 15), machine("n1-standard-8", 8, 30), machine("n1-standard-16", 16, 60)],
  },
  l4: {
    accelerator: "NVIDIA_L4",
    machines: [
      machine("g2-standard-4", 4, 16),
      machine("g2-standard-8", 8, 32),
      machine("g2-standard-12", 12, 48),
      machine("g2-standard-16", 16, 64),
      machine("g2-standard-32", 32, 128),
    ],
  },
  "rtx-pro-6000": { accelerator: "NVIDIA_RTX_PRO_6000", machines: [machine("g4-standard-48", 48, 180)] },
  "a100-80gb": { accelerator: "NVIDIA_A100_80GB", machines: [machine("a2-ultragpu-1g", 12, 170)] },
  h100: { accelerator: "NVIDIA_H100_80GB", machines: [machine("a3-highgpu-1g", 26, 234)] },
};
const cpuMachines = [2, 4, 8, 16, 32].map((cpu) => machine(`n2-standard-${cpu}`, cpu, 4 * cpu));

export const vertexAi: DeploymentTarget = {
  name: "vertex-ai",
  platformVariables: [],
  render(deployment) {
    const found = machineOf(deployment);
    const problems = problemsOf(deployment, found);
    if (found === undefined || problems.length > 0) throw new ConfigError(problems);
    return [
      toFile("upload-model.json", uploadModel(deployment)),
      toFile("deploy-model.json", deployModel(deployment, found)),
    ];
  },
};

function toFile(path: string, body: object) {
  return { path, text: `${JSON.stringify(body, null, 2)}\n` };
}

function machineOf({ device, resources }: Deployment): Machine | undefined {
  return smallestMachine(device.kind === "cpu" ? cpuMachines : (gpuMachines[device.gpu]?.machines ?? []), resources);
}

function problemsOf(deployment: Deployment, found: Machine | undefined): string[] {
  const { replicas, resources, timeouts } = deployment;
  const problems = exceeded("Vertex AI", [
    ["timeouts.requestSeconds", timeouts.requestSeconds, MAX_REQUEST_SECONDS, " s"],
    ["timeouts.startupSeconds", timeouts.startupSeconds, MAX_STARTUP_SECONDS, " s"],
    ["timeouts.shutdownGraceSeconds", timeouts.shutdownGraceSeconds, MAX_GRACE_SECONDS, " s"],
  ]);
  const missingGpu = gpuProblems("Vertex AI", deployment, gpuMachines);
  problems.push(...missingGpu);
  if (missingGpu.length === 0 && found === undefined) {
    problems.push(`resources: Vertex AI has no machine with ${resources.cpu} CPUs and ${resources.memoryGiB} GiB.`);
  }
  if (replicas.min === 0) problems.push("replicas.min: Vertex AI keeps at least one replica; expected 1, got 0.");
  return [
    ...problems,
    ...queueProblems("Vertex AI", deployment),
    ...unusedFields("Vertex AI", deployment, {
      s3Role: "has no AWS roles",
      secrets: "has no secrets for containers; leave them out",
      repository: "mounts no repository of Hugging Face",
      asyncOutput: "has no asynchronous inference for containers",
      modelImage: "mounts no images; use a folder of the image",
    }),
  ];
}

function uploadModel(deployment: Deployment) {
  const { name, image, timeouts } = deployment;
  const settings = settingsOf(deployment, timeouts.shutdownGraceSeconds ?? MAX_GRACE_SECONDS);
  const probe = (path: string) => ({ httpGet: { path, port: PORT }, timeoutSeconds: 5 });
  return {
    modelId: name,
    model: {
      displayName: name,
      containerSpec: {
        imageUri: image,
        // The platform sets AIP_HTTP_PORT, AIP_HEALTH_ROUTE and AIP_PREDICT_ROUTE to these.
        ports: [{ containerPort: PORT }],
        healthRoute: healthPaths.readiness,
        predictRoute: "/predict",
        // Expanded as in Kubernetes, says the reference of EnvVar:
        // https://cloud.google.com/vertex-ai/docs/reference/rest/v1/EnvVar
        env: Object.entries(settings).map(([variable, value]) => ({ name: variable, value: kubernetesValue(value) })),
        deploymentTimeout: `${timeouts.startupSeconds}s`,
        startupProbe: {
          ...probe(healthPaths.readiness),
          periodSeconds: STARTUP_PERIOD_SECONDS,
          failureThreshold: Math.ceil(timeouts.startupSeconds / STARTUP_PERIOD_SECONDS),
        },
        healthProbe: { ...probe(healthPaths.readiness), periodSeconds: 10, failureThreshold: 2 },
        livenessProbe: { ...probe(healthPaths.liveness), periodSeconds: 10, failureThreshold: 3 },
      },
    },
  };
}

function deployModel({ name, device, replicas }: Deployment, { machineType }: Machine) {
  const isCpu = device.kind === "cpu";
  return {
    deployedModel: {
      model: `projects/$PROJECT_ID/locations/$REGION/models/${name}`,
      displayName: name,
      dedicatedResources: {
        machineSpec: {
          machineType,
          ...(!isCpu && { acceleratorType: gpuMachines[device.gpu]?.accelerator, acceleratorCount: 1 }),
        },
        minReplicaCount: replicas.min,
        maxReplicaCount: replicas.max,
        autoscalingMetricSpecs: [
          {
            metricName: `aiplatform.googleapis.com/prediction/online/${isCpu ? "cpu/utilization" : "accelerator/duty_cycle"}`,
            target: TARGET_DUTY,
          },
        ],
      },
    },
    trafficSplit: { "0": 100 },
  };
}
