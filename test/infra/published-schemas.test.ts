/**
 * Rendered files against the schemas that the platforms publish: Google's discovery documents run.v1 and aiplatform.v1
 * (google-api-python-client 2.202.0, October 2026), AWS's model of ECS (botocore 1.44.5), Azure's models of Container
 * Apps (azure-mgmt-appcontainers 5.1.0, API version 2026-07-01).
 */
import { describe, expect, test } from "vitest";
import { parse } from "yaml";

import { azureContainerApps } from "../../infra/azure-container-apps.ts";
import { cloudRun } from "../../infra/cloud-run.ts";
import type { DeploymentTarget } from "../../infra/deployment-target.ts";
import { parseDeployment } from "../../infra/deployment.ts";
import { ecs } from "../../infra/ecs.ts";
import { vertexAi } from "../../infra/vertex-ai.ts";
import {
  problemsOf,
  readContainerAppModels,
  readDiscoveryDocument,
  readEcsModel,
} from "../support/deployments/published-schema.ts";

const service = {
  name: "pictures",
  image: "registry.example.com/fovea:1.2.3",
  device: { kind: "cuda", gpu: "l4" },
  resources: { cpu: 4, memoryGiB: 16 },
  replicas: { min: 1, max: 2 },
  environment: { MAX_NUM_SEQS: 8 },
};
const withSecrets = { ...service, secrets: { API_KEY: "key", REDIS_URL: "redis" } };
const cpu = { ...service, device: { kind: "cpu" }, resources: { cpu: 2, memoryGiB: 4 } };
const queue = { JOB_SOURCE: "redis://redis.queues:6380/2?queue=pictures" };
const worker = { ...service, worker: true, replicas: { min: 2, max: 2 }, environment: queue };

function render(target: DeploymentTarget, description: object): unknown[] {
  return target.render(parseDeployment(JSON.stringify(description))).map(({ text }) => parse(text) as unknown);
}

describe("Cloud Run", async () => {
  const { schema, text } = await readDiscoveryDocument("run.v1.json");
  const batch = { input: "s3://bucket/in.jsonl", output: "s3://bucket/out.jsonl" };
  const rtx = { ...service, device: { kind: "cuda", gpu: "rtx-pro-6000" }, resources: { cpu: 20, memoryGiB: 80 } };
  const cases: [schema: string, description: object][] = [
    ["Service", withSecrets],
    ["Service", rtx],
    ["Service", cpu],
    ["Job", { ...service, batch }],
    ["Job", { ...cpu, batch }],
    ["WorkerPool", worker],
    ["WorkerPool", { ...worker, device: { kind: "cpu" } }],
  ];

  test.for(cases)("%s matches run.v1: %j", ([name, description]) => {
    const [object] = render(cloudRun, description);
    expect(problemsOf(object, schema(name))).toEqual([]);
  });

  test("every annotation is one that Google lists, because others with its prefixes are rejected", () => {
    const annotations = cases
      .flatMap(([, description]) => render(cloudRun, description))
      .flatMap(
        (object) =>
          JSON.stringify(object).match(/(?:run\.googleapis\.com|autoscaling\.knative\.dev)\/\w[\w-]*(?=":)/g) ?? [],
      )
      .filter((name) => name !== "run.googleapis.com/accelerator");
    expect(annotations).toContain("run.googleapis.com/gpu-zonal-redundancy-disabled");
    for (const name of new Set(annotations)) expect(text).toContain(`\`${name}\``);
  });

  test("a GPU is one unit of the resource, the only value that Google supports", () => {
    expect(text).toContain("The only supported 'nvidia.com/gpu' value is '1'");
    expect(JSON.stringify(render(cloudRun, service))).toContain('"nvidia.com/gpu":"1"');
  });
});

describe("Vertex AI", async () => {
  const { schema } = await readDiscoveryDocument("aiplatform.v1.json");

  test.for([
    service,
    cpu,
    { ...service, replicas: { min: 2, max: 2 } },
    { ...service, device: { kind: "cuda", gpu: "h100" } },
  ])("both bodies match aiplatform.v1: %j", (description) => {
    const [upload, deploy] = render(vertexAi, description);
    expect(problemsOf(upload, schema("GoogleCloudAiplatformV1UploadModelRequest"))).toEqual([]);
    expect(problemsOf(deploy, schema("GoogleCloudAiplatformV1DeployModelRequest"))).toEqual([]);
  });
});

describe("ECS", async () => {
  const schemaOf = await readEcsModel();
  const jobs = { JOB_SOURCE: "sqs://sqs.eu-west-1.amazonaws.com/123456789012/pictures" };

  test.for([
    { ...withSecrets, worker: true, environment: jobs },
    { ...cpu, worker: true, environment: jobs },
  ])("containers match the model of ECS: %j", (description) => {
    const [module] = render(ecs, description) as [
      { resource: { aws_ecs_task_definition: { fovea: { container_definitions: string } } } },
    ];
    const containers = JSON.parse(module.resource.aws_ecs_task_definition.fovea.container_definitions) as unknown;
    expect(problemsOf(containers, { kind: "list", of: () => schemaOf("ContainerDefinition") })).toEqual([]);
  });
});

describe("Azure Container Apps", async () => {
  const schemaOf = await readContainerAppModels();
  const onAzure = { timeouts: { requestSeconds: 240 }, device: { kind: "cuda", gpu: "t4" } };
  const rabbit = { JOB_SOURCE: "amqp://rabbit.queues:5672/?queue=pictures" };

  test.for([
    { ...withSecrets, ...onAzure },
    { ...cpu, timeouts: onAzure.timeouts },
    { ...worker, ...onAzure, replicas: { min: 0, max: 2 } },
    { ...worker, ...onAzure, replicas: { min: 0, max: 2 }, environment: rabbit },
  ])("the app matches the models of its API: %j", (description) => {
    const [template] = render(azureContainerApps, description) as [{ resources: Record<string, unknown>[] }];
    // A template adds these to the body of the resource.
    const { type, apiVersion, name, ...resource } = template.resources[0]!;
    expect([type, apiVersion, name]).toEqual(["Microsoft.App/containerApps", expect.any(String), "pictures"]);
    expect(problemsOf(resource, schemaOf("ContainerApp"))).toEqual([]);
  });
});

test("a field that is unknown, missing or of another type is a problem, at any depth", async () => {
  const { schema } = await readDiscoveryDocument("run.v1.json");
  const [object] = render(cloudRun, service);
  const changed = JSON.parse(
    JSON.stringify(object)
      .replace('"failureThreshold":', '"failureThresholds":')
      .replace('"containerConcurrency":8', '"containerConcurrency":"8"'),
  ) as unknown;
  expect(problemsOf(changed, schema("Service"))).toEqual([
    '.spec.template.spec.containerConcurrency: expected an integer, got "8"',
    ".spec.template.spec.containers[0].startupProbe.failureThresholds: unknown",
  ]);
  const ecsSchema = await readEcsModel();
  expect(problemsOf({ name: "A" }, ecsSchema("Secret"), "secret")).toEqual(["secret.valueFrom: missing"]);
  const azureSchema = await readContainerAppModels();
  expect(
    problemsOf({ properties: { template: { scale: { rules: [{ nam: "a" }] } } } }, azureSchema("ContainerApp")),
  ).toEqual([".location: missing", ".properties.template.scale.rules[0].nam: unknown"]);
});
