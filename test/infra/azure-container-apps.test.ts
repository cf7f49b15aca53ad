/**
 * Azure's template, against the fields of Microsoft.App/containerApps@2024-03-01
 * (https://learn.microsoft.com/azure/templates/microsoft.app/containerapps), read on 2026-11-22.
 */
import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { z } from "zod";

import { azureContainerApps } from "../../infra/azure-container-apps.ts";
import type { RenderedFile } from "../../infra/deployment-target.ts";
import { parseDeployment } from "../../infra/deployment.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";

const text = z.string();
const probe = z.strictObject({
  type: z.enum(["Startup", "Readiness", "Liveness"]),
  httpGet: z.strictObject({ path: text, port: z.int() }),
  timeoutSeconds: z.int().min(1).max(240),
  periodSeconds: z.int().min(1).max(240),
  failureThreshold: z.int().min(1).max(10),
});
const rule = z.union([
  z.strictObject({ name: text, http: z.strictObject({ metadata: z.strictObject({ concurrentRequests: text }) }) }),
  z.strictObject({
    name: text,
    custom: z.strictObject({
      type: text,
      metadata: z.record(text, text),
      auth: z.array(z.strictObject({ secretRef: text, triggerParameter: text })),
    }),
  }),
]);
const app = z.strictObject({
  type: z.literal("Microsoft.App/containerApps"),
  apiVersion: z.literal("2024-03-01"),
  name: text,
  location: text,
  identity: z.strictObject({ type: text, userAssignedIdentities: z.record(text, z.strictObject({})) }).optional(),
  properties: z.strictObject({
    environmentId: text,
    workloadProfileName: text,
    configuration: z.strictObject({
      activeRevisionsMode: z.enum(["Single", "Multiple"]),
      ingress: z
        .strictObject({
          external: z.boolean(),
          targetPort: z.int(),
          transport: z.enum(["auto", "http", "http2", "tcp"]),
        })
        .optional(),
      secrets: z.array(z.strictObject({ name: text.regex(/^[a-z0-9][a-z0-9-]*$/), keyVaultUrl: text, identity: text })),
    }),
    template: z.strictObject({
      containers: z.array(
        z.strictObject({
          name: text,
          image: text,
          args: z.array(text).optional(),
          env: z.array(z.strictObject({ name: text, value: text.optional(), secretRef: text.optional() })),
          resources: z.strictObject({ cpu: z.number(), memory: text.regex(/^[\d.]+Gi$/) }),
          probes: z.array(probe),
        }),
      ),
      scale: z.strictObject({ minReplicas: z.int(), maxReplicas: z.int(), rules: z.array(rule) }),
      terminationGracePeriodSeconds: z.int().min(0).max(600),
    }),
  }),
});
const parameter = z.strictObject({
  type: z.literal("string"),
  defaultValue: text.optional(),
  metadata: z.strictObject({ description: text }),
});
const template = z.strictObject({
  $schema: z.literal("https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"),
  contentVersion: text,
  parameters: z.record(text, parameter),
  resources: z.tuple([app]),
});

const description = {
  name: "pictures",
  image: "example.azurecr.io/fovea:1.2.3",
  device: { kind: "cuda", gpu: "a100-80gb" },
  resources: { cpu: 8, memoryGiB: 64 },
  replicas: { min: 0, max: 2 },
  timeouts: { requestSeconds: 240 },
};

function render(changes: object = {}) {
  return templateOf(renderWith(azureContainerApps, description)(changes));
}

function templateOf([file]: readonly RenderedFile[]) {
  return template.parse(JSON.parse(file!.text));
}

testDeploymentTarget({
  target: azureContainerApps,
  // A description without timeouts has requests of 300 s.
  read,
  takesCpu: true,
  maxGraceSeconds: 590,
  gpu: "t4",
  base: { timeouts: { requestSeconds: 240 } },
});

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const { parameters, resources } = templateOf(files);
  const { configuration, template: revision } = resources[0].properties;
  const container = revision.containers[0]!;
  const pathOf = (type: string) => container.probes.find((entry) => entry.type === type)!.httpGet.path;
  const vaultNames = new Map(
    configuration.secrets.map(({ name, keyVaultUrl }) => [name, /secrets\/([^']+)'/.exec(keyVaultUrl)![1]!]),
  );
  const http = revision.scale.rules.find((entry) => "http" in entry);
  return {
    image: container.image,
    port: configuration.ingress!.targetPort,
    environment: Object.fromEntries(
      container.env.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]])),
    ),
    secrets: Object.fromEntries(
      container.env.flatMap(({ name, secretRef }) =>
        secretRef === undefined ? [] : [[name, vaultNames.get(secretRef)!]],
      ),
    ),
    readinessPath: pathOf("Readiness"),
    livenessPath: pathOf("Liveness"),
    secondsToEnd: revision.terminationGracePeriodSeconds,
    numGpus: parameters.workloadProfile!.defaultValue!.includes("GPU") ? 1 : 0,
    replicas: { min: revision.scale.minReplicas, max: revision.scale.maxReplicas },
    concurrency: Number(http?.http.metadata.concurrentRequests),
  };
}

test("a start may take as long as the deployment says, within the platform's ten failures", () => {
  for (const startupSeconds of [10, 100, 600, 1795]) {
    const { probes } = render({ timeouts: { requestSeconds: 240, startupSeconds } }).resources[0].properties.template
      .containers[0]!;
    const { periodSeconds, failureThreshold } = probes[0]!;
    expect(periodSeconds * failureThreshold).toBeGreaterThanOrEqual(startupSeconds);
    expect(periodSeconds * failureThreshold).toBeLessThan(startupSeconds + periodSeconds);
  }
});

test("a job of SQS wakes a worker from zero, counted with the keys of the deployment", () => {
  const sqs = "sqs://sqs.eu-west-1.amazonaws.com/123456789012/pictures";
  const workers = { worker: true, environment: { JOB_SOURCE: sqs } };
  expect(() => render(workers)).toThrow(/^secrets\.AWS_ACCESS_KEY_ID: it is missing/);
  const secrets = { AWS_ACCESS_KEY_ID: "Key-Id", AWS_SECRET_ACCESS_KEY: "key-secret" };
  const { configuration, template: revision } = render({ ...workers, secrets }).resources[0].properties;
  expect(configuration.ingress).toBe(undefined);
  expect(revision.containers[0]!.args).toEqual(["worker"]);
  expect(revision.scale.rules).toEqual([
    {
      name: "jobs-0",
      custom: {
        type: "aws-sqs-queue",
        metadata: expect.objectContaining({ queueURL: sqs.replace("sqs:", "https:") }),
        auth: [
          { secretRef: "key-id", triggerParameter: "awsAccessKeyID" },
          { secretRef: "key-secret", triggerParameter: "awsSecretAccessKey" },
        ],
      },
    },
  ]);
});

test.for<[object, RegExp]>([
  [{ timeouts: {} }, /^timeouts\.requestSeconds: Azure Container Apps allows at most 240 s, got 300 s\.$/],
  [
    { timeouts: { requestSeconds: 240, startupSeconds: 2401 } },
    /^timeouts\.startupSeconds: Azure Container Apps allows at most 2400 s, got 2401 s\.$/,
  ],
  [{ device: { kind: "cuda", gpu: "l4" } }, /^device\.gpu: Azure Container Apps has t4, a100-80gb, not l4\.$/],
  [{ resources: { cpu: 25, memoryGiB: 8 } }, /^resources\.cpu: Azure Container Apps allows at most 24, got 25\.$/],
  [
    { worker: true, environment: { JOB_SOURCE: "pubsub://project/pictures" } },
    /^replicas: Azure cannot read the length of this queue; give min and max the same value\.$/,
  ],
  [
    {
      worker: true,
      environment: { JOB_SOURCE: "amqp://rabbit/?queue=jobs", JOB_SOURCE_USERNAME: "fovea" },
      secrets: { JOB_SOURCE_PASSWORD: "rabbit-password" },
    },
    /^secrets\.JOB_SOURCE_USERNAME: it is missing; KEDA reads the length of the queue with it\.$/,
  ],
  [{ secrets: { API_KEY: "api_key" } }, /^secrets\.API_KEY: expected the name of a secret in Azure Key Vault: letters/],
])("unsupported fields of Azure are rejected by path: %j", ([changes, expected]) => {
  expect(() => render(changes)).toThrow(expected);
});

test("the command of infra/README.md gives every parameter of its example that has no default", async () => {
  const read = (path: string): Promise<string> => readFile(new URL(`../../${path}`, import.meta.url), "utf8");
  const command = /^az deployment group create[^]*?(?<!\\)$/m.exec(await read("infra/README.md"))![0];
  const [file] = azureContainerApps.render(parseDeployment(await read("examples/deployments/answers-azure.yaml")));
  const { parameters } = JSON.parse(file!.text) as { readonly parameters: Readonly<Record<string, object>> };
  const required = Object.keys(parameters).filter((name) => !("defaultValue" in parameters[name]!));
  expect(required).toContain("keyVaultUri");
  for (const name of required) expect(command).toContain(` ${name}=`);
});
