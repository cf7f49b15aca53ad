/**
 * Azure Container Apps with serverless GPUs, as a template for `az deployment group create`. The environment, the
 * identity and the key vault exist already; the template names them by parameters.
 */
import { ConfigError } from "../functions/settings/setting.ts";
import {
  PORT,
  exceeded,
  gpuProblems,
  hasQueue,
  healthPaths,
  secretNameProblems,
  settingsOf,
  unusedFields,
} from "./deployment-target.ts";
import type { DeploymentTarget, SecretNames } from "./deployment-target.ts";
import type { Deployment, GpuName } from "./deployment.ts";
import { queueTriggers } from "./kubernetes-scaling.ts";

const MAX_REQUEST_SECONDS = 240;
/** The platform's maximum of the time between SIGTERM and SIGKILL, less the time to leave the load balancer. */
const MAX_GRACE_SECONDS = 590;
const DEFAULT_GRACE_SECONDS = 45;
const EXIT_SECONDS = 10;
const STARTUP_PERIOD_SECONDS = 10;
/** The platform allows at most this many failures of a probe, at most this far apart. */
const MAX_FAILURES = 10;
const MAX_PERIOD_SECONDS = 240;

interface GpuProfile {
  /** A profile of the environment with serverless GPUs; a replica has all of it. */
  readonly profile: string;
  readonly cpu: number;
  readonly memoryGiB: number;
}

const gpuProfiles: Readonly<Partial<Record<GpuName, GpuProfile>>> = {
  t4: { profile: "Consumption-GPU-NC8as-T4", cpu: 8, memoryGiB: 56 },
  "a100-80gb": { profile: "Consumption-GPU-NC24-A100", cpu: 24, memoryGiB: 220 },
};
const cpuProfile: GpuProfile = { profile: "Consumption", cpu: 4, memoryGiB: 8 };

/** Of Azure Key Vault. A secret of the app has the same name in lower case, and ends with no dash. */
const keyVaultNames: SecretNames = {
  pattern: /^[A-Za-z0-9]([A-Za-z0-9-]{0,125}[A-Za-z0-9])?$/,
  expected: "the name of a secret in Azure Key Vault: letters, digits and dashes",
};

export const azureContainerApps: DeploymentTarget = {
  name: "azure-container-apps",
  platformVariables: [],
  render(deployment) {
    const profile = profileOf(deployment);
    const problems = problemsOf(deployment, profile);
    if (profile === undefined || problems.length > 0) throw new ConfigError(problems);
    return [{ path: "template.json", text: `${JSON.stringify(template(deployment, profile), null, 2)}\n` }];
  },
};

function profileOf({ device }: Deployment): GpuProfile | undefined {
  return device.kind === "cpu" ? cpuProfile : gpuProfiles[device.gpu];
}

function problemsOf(deployment: Deployment, profile: GpuProfile | undefined): string[] {
  const { resources, timeouts } = deployment;
  const limits = exceeded("Azure Container Apps", [
    ["timeouts.requestSeconds", timeouts.requestSeconds, MAX_REQUEST_SECONDS, " s"],
    ["timeouts.startupSeconds", timeouts.startupSeconds, MAX_FAILURES * MAX_PERIOD_SECONDS, " s"],
    ["timeouts.shutdownGraceSeconds", timeouts.shutdownGraceSeconds, MAX_GRACE_SECONDS, " s"],
    ["resources.cpu", resources.cpu, profile?.cpu ?? null, ""],
    ["resources.memoryGiB", resources.memoryGiB, profile?.memoryGiB ?? null, " GiB"],
  ]);
  return [
    ...limits,
    ...gpuProblems("Azure Container Apps", deployment, gpuProfiles),
    ...queueProblemsOf(deployment),
    ...secretNameProblems(deployment, keyVaultNames),
    ...unusedFields("Azure Container Apps", deployment, {
      s3Role: "has no AWS roles; list the secrets of a key pair under secrets",
      repository: "mounts no repository of Hugging Face",
      asyncOutput: "has no asynchronous inference",
      modelImage: "mounts no images; use s3:// or a folder of the image",
    }),
  ];
}

/** KEDA reads credentials of queues from secrets alone here. */
function queueProblemsOf(deployment: Deployment): string[] {
  const { worker, replicas, secrets } = deployment;
  const needsQueue = worker || (hasQueue(deployment) && replicas.min === 0);
  if (!needsQueue || replicas.min === replicas.max) return [];
  const rules = queueRules(deployment);
  if (rules.length === 0) {
    return ["replicas: Azure cannot read the length of this queue; give min and max the same value."];
  }
  const isSqs = rules.some(({ custom }) => custom.type === "aws-sqs-queue");
  const hasPassword = "JOB_SOURCE_PASSWORD" in secrets;
  const needed = isSqs ? sqsKeys : hasPassword ? ["JOB_SOURCE_USERNAME"] : [];
  return needed
    .filter((name) => !(name in secrets))
    .map((name) => `secrets.${name}: it is missing; KEDA reads the length of the queue with it.`);
}

const sqsKeys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] as const;
const queueCredentials = [
  { variable: "JOB_SOURCE_USERNAME", parameter: "username" },
  { variable: "JOB_SOURCE_PASSWORD", parameter: "password" },
] as const;
/** NATS is read through its monitoring port, without credentials. */
const typesWithCredentials: ReadonlySet<string> = new Set(["rabbitmq", "redis"]);

function queueRules(deployment: Deployment) {
  const { secrets } = deployment;
  // Pub/Sub wants an identity of Google Cloud.
  const triggers = queueTriggers(deployment).filter(({ type }) => type !== "gcp-pubsub");
  return triggers.map(({ type, metadata }, index) => ({
    name: `jobs-${index}`,
    custom: {
      type,
      metadata: Object.fromEntries(
        Object.entries(metadata)
          .filter(([field]) => !field.endsWith("FromEnv"))
          .map(([field, value]) => [field, literal(value)]),
      ),
      auth:
        type === "aws-sqs-queue"
          ? [
              { secretRef: secretName(secrets.AWS_ACCESS_KEY_ID ?? ""), triggerParameter: "awsAccessKeyID" },
              { secretRef: secretName(secrets.AWS_SECRET_ACCESS_KEY ?? ""), triggerParameter: "awsSecretAccessKey" },
            ]
          : queueCredentials
              .filter(({ variable }) => typesWithCredentials.has(type) && variable in secrets)
              .map(({ variable, parameter }) => ({
                secretRef: secretName(secrets[variable] ?? ""),
                triggerParameter: parameter,
              })),
    },
  }));
}

function template(deployment: Deployment, { profile }: GpuProfile) {
  const { name, worker, secrets } = deployment;
  const hasSecrets = Object.keys(secrets).length > 0;
  return {
    $schema: "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
    contentVersion: "1.0.0.0",
    parameters: {
      environmentId: { type: "string", metadata: { description: "Resource id of the Container Apps environment." } },
      workloadProfile: {
        type: "string",
        defaultValue: profile,
        metadata: { description: `Name of the environment's workload profile of the type ${profile}.` },
      },
      ...(hasSecrets && {
        keyVaultUri: { type: "string", metadata: { description: "https://NAME.vault.azure.net/, with the secrets." } },
        identityId: { type: "string", metadata: { description: "Identity that may read the key vault." } },
      }),
    },
    resources: [
      {
        type: "Microsoft.App/containerApps",
        apiVersion: "2024-03-01",
        name,
        location: "[resourceGroup().location]",
        ...(hasSecrets && {
          identity: { type: "UserAssigned", userAssignedIdentities: { "[parameters('identityId')]": {} } },
        }),
        properties: {
          environmentId: "[parameters('environmentId')]",
          workloadProfileName: "[parameters('workloadProfile')]",
          configuration: {
            activeRevisionsMode: "Single",
            ...(!worker && { ingress: { external: true, targetPort: PORT, transport: "http" } }),
            secrets: [...new Set(Object.values(secrets))].map((secret) => ({
              name: secretName(secret),
              keyVaultUrl: `[concat(parameters('keyVaultUri'), 'secrets/${secret}')]`,
              identity: "[parameters('identityId')]",
            })),
          },
          template: {
            containers: [container(deployment)],
            scale: scale(deployment),
            terminationGracePeriodSeconds: graceSeconds(deployment) + EXIT_SECONDS,
          },
        },
      },
    ],
  };
}

/**
 * A text within brackets would be an expression of the template; one more bracket makes it a text.
 * https://learn.microsoft.com/azure/azure-resource-manager/templates/template-expressions#escape-characters
 */
function literal(text: string): string {
  return /^\[.*\]$/s.test(text) ? `[${text}` : text;
}

/** Names of an app's secrets are lower-case. */
function secretName(secret: string): string {
  return secret.toLowerCase();
}

function scale(deployment: Deployment) {
  const { replicas, concurrency, worker } = deployment;
  const requests = { name: "requests", http: { metadata: { concurrentRequests: String(concurrency) } } };
  return {
    minReplicas: replicas.min,
    maxReplicas: replicas.max,
    rules: [...(worker ? [] : [requests]), ...queueRules(deployment)],
  };
}

function container(deployment: Deployment) {
  const { image, resources, secrets, timeouts, worker } = deployment;
  const probe = (path: string) => ({ httpGet: { path, port: PORT }, timeoutSeconds: 5 });
  return {
    name: "fovea",
    image,
    ...(worker && { args: ["worker"] }),
    env: [
      ...Object.entries(settingsOf(deployment, graceSeconds(deployment))).map(([name, value]) => ({
        name,
        value: literal(value),
      })),
      ...Object.entries(secrets).map(([name, secret]) => ({ name, secretRef: secretName(secret) })),
    ],
    resources: { cpu: resources.cpu, memory: `${resources.memoryGiB}Gi` },
    // In place of the platform's own, which give up after 4 minutes.
    probes: [
      { type: "Startup", ...probe(healthPaths.readiness), ...startupBudget(timeouts.startupSeconds) },
      { type: "Readiness", ...probe(healthPaths.readiness), periodSeconds: 5, failureThreshold: 2 },
      { type: "Liveness", ...probe(healthPaths.liveness), periodSeconds: 10, failureThreshold: 3 },
    ],
  };
}

function startupBudget(startupSeconds: number) {
  const periodSeconds = Math.max(STARTUP_PERIOD_SECONDS, Math.ceil(startupSeconds / MAX_FAILURES));
  return { periodSeconds, failureThreshold: Math.ceil(startupSeconds / periodSeconds) };
}

function graceSeconds({ timeouts }: Deployment): number {
  return timeouts.shutdownGraceSeconds ?? DEFAULT_GRACE_SECONDS;
}
