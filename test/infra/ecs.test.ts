/**
 * Workers on ECS. The containers are held against the fields of ContainerDefinition in botocore 1.44.5 (ecs,
 * 2014-11-13), read on 2026-11-22.
 */
import { expect, test } from "vitest";
import { z } from "zod";

import type { RenderedFile } from "../../infra/deployment-target.ts";
import { ecs } from "../../infra/ecs.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";
import { danglingReferences, policyDocument, terraformModule } from "../support/deployments/terraform-schema.ts";

const text = z.string();
const containerDefinition = z.strictObject({
  name: text,
  image: text,
  command: z.array(text),
  essential: z.boolean(),
  cpu: z.int(),
  memory: z.int().min(6),
  resourceRequirements: z.array(z.strictObject({ type: z.literal("GPU"), value: text })).optional(),
  environment: z.array(z.strictObject({ name: text, value: text })),
  secrets: z.array(z.strictObject({ name: text, valueFrom: text })),
  stopTimeout: z.int().max(120),
  healthCheck: z.strictObject({
    command: z.array(text),
    interval: z.int().min(5).max(300),
    timeout: z.int().min(2).max(60),
    retries: z.int().min(1).max(10),
    startPeriod: z.int().min(0).max(300),
  }),
  mountPoints: z.array(z.strictObject({ sourceVolume: text, containerPath: text })),
  logConfiguration: z.strictObject({ logDriver: z.literal("awslogs"), options: z.record(text, text) }),
});

const jobSource = "sqs://sqs.eu-west-1.amazonaws.com/123456789012/pictures";
const description = {
  name: "pictures",
  image: "123456789012.dkr.ecr.eu-west-1.amazonaws.com/fovea:1.2.3",
  model: "s3://models/llava",
  device: { kind: "cuda", gpu: "l4" },
  resources: { cpu: 4, memoryGiB: 16 },
  replicas: { min: 0, max: 4 },
  concurrency: 8,
  worker: true,
  environment: { JOB_SOURCE: jobSource, JOB_RESULTS: "s3://answers/pictures" },
  secrets: { JOB_WEBHOOK_SECRET: "pictures-webhook" },
};

function render(changes: object = {}) {
  return moduleOf(renderWith(ecs, description)(changes));
}

function moduleOf([file]: readonly RenderedFile[]) {
  expect(danglingReferences(file!.text)).toEqual([]);
  const module = terraformModule.parse(JSON.parse(file!.text));
  const [container] = module.resource.aws_ecs_task_definition!.fovea!.container_definitions;
  return { ...module, container: containerDefinition.parse(container) };
}

testDeploymentTarget({
  target: ecs,
  read,
  takesCpu: true,
  maxGraceSeconds: 110,
  base: { worker: true, environment: { JOB_SOURCE: jobSource } },
});

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const { resource, data, container } = moduleOf(files);
  const secretOf = (reference: string): string =>
    data!.aws_secretsmanager_secret[/^\$\{data\.aws_secretsmanager_secret\.(\w+)\.arn\}$/.exec(reference)![1]!]!.name;
  const scaling = resource.aws_appautoscaling_target?.fovea;
  const desired = resource.aws_ecs_service!.fovea!.desired_count;
  return {
    image: container.image,
    // The image's own, which its health check asks.
    port: 8000,
    environment: Object.fromEntries(container.environment.map(({ name, value }) => [name, value])),
    secrets: Object.fromEntries(container.secrets.map(({ name, valueFrom }) => [name, secretOf(valueFrom)])),
    readinessPath: null,
    livenessPath: null,
    secondsToEnd: container.stopTimeout,
    numGpus: container.resourceRequirements?.length ?? 0,
    replicas: { min: scaling?.min_capacity ?? desired, max: scaling?.max_capacity ?? desired },
    concurrency:
      resource.aws_appautoscaling_policy?.jobs?.target_tracking_scaling_policy_configuration?.target_value ?? null,
  };
}

test("the queue is the one that workers read, and failed jobs go to its dead letters", () => {
  const { resource, provider } = render();
  expect(provider.aws.region).toBe("eu-west-1");
  const { jobs, dead_letters: dead } = resource.aws_sqs_queue!;
  expect([jobs!.name, dead!.name]).toEqual(["pictures", "pictures-dead-letters"]);
  expect(jobs!.redrive_policy).toContain("aws_sqs_queue.dead_letters.arn");
  const fifo = render({ environment: { JOB_SOURCE: `${jobSource}.fifo` } }).resource.aws_sqs_queue!;
  expect([fifo.jobs!.name, fifo.dead_letters!.name]).toEqual(["pictures.fifo", "pictures-dead-letters.fifo"]);
});

test("waiting and leased jobs count for each worker, so that a job wakes the first and keeps it", () => {
  const { resource } = render();
  const { metrics } =
    resource.aws_appautoscaling_policy!.jobs!.target_tracking_scaling_policy_configuration!
      .customized_metric_specification!;
  expect(metrics!.map(({ metric_stat: stat }) => stat?.metric.metric_name)).toEqual([
    "ApproximateNumberOfMessagesVisible",
    "ApproximateNumberOfMessagesNotVisible",
    "RunningTaskCount",
    undefined,
  ]);
  expect(metrics!.filter(({ return_data: isResult }) => isResult)).toHaveLength(1);
  expect(resource.aws_appautoscaling_target!.fovea!.min_capacity).toBe(0);
});

const rightsOf = (policy: unknown) =>
  policyDocument
    .parse(policy)
    .Statement.flatMap(({ Action, Resource }) => Action.map((action) => `${action} ${[Resource].flat().join(" ")}`));

test("each role has its own rights: the process on queue and buckets, ECS on the image, the log and the secrets", () => {
  const { task, start } = render().resource.aws_iam_role_policy!;
  const queue = "arn:aws:sqs:eu-west-1:123456789012:pictures";
  expect(rightsOf(task!.policy)).toEqual([
    "s3:GetObject arn:aws:s3:::models/llava/*",
    "s3:ListBucket arn:aws:s3:::models",
    // Without it, workers could not look for the result of an earlier delivery, and no job would be done.
    "s3:GetObject arn:aws:s3:::answers/pictures/*",
    "s3:PutObject arn:aws:s3:::answers/pictures/*",
    "s3:ListBucket arn:aws:s3:::answers",
    `sqs:ReceiveMessage ${queue}`,
    `sqs:DeleteMessage ${queue}`,
    `sqs:ChangeMessageVisibility ${queue}`,
    `sqs:GetQueueAttributes ${queue}`,
    `sqs:GetQueueUrl ${queue}-dead-letters`,
    `sqs:SendMessage ${queue}-dead-letters`,
  ]);
  expect(rightsOf(start!.policy)).toContain(
    "secretsmanager:GetSecretValue ${data.aws_secretsmanager_secret.JOB_WEBHOOK_SECRET.arn}",
  );
});

test("the process may read and write the files that jobs may name, and their parts", () => {
  const environment = { JOB_SOURCE: jobSource, JOB_ALLOWED_TARGETS: "s3://files/lines/, https://example.com/hooks" };
  const { task } = render({ environment }).resource.aws_iam_role_policy!;
  const files = ["lines", "lines/*", "lines.parts/*"].map((key) => `arn:aws:s3:::files/${key}`).join(" ");
  expect(rightsOf(task!.policy).filter((right) => right.includes(":::files"))).toEqual([
    `s3:GetObject ${files}`,
    `s3:PutObject ${files}`,
    `s3:DeleteObject ${files}`,
    `s3:AbortMultipartUpload ${files}`,
    "s3:ListBucket arn:aws:s3:::files",
  ]);
});

test.for<[object, RegExp]>([
  [{ worker: false }, /^worker: on ECS, workers are rendered/],
  [{ environment: { JOB_SOURCE: "redis://redis?queue=a" } }, /^environment\.JOB_SOURCE: ECS expects sqs:/],
  [{ timeouts: { shutdownGraceSeconds: 111 } }, /^timeouts\.shutdownGraceSeconds: ECS allows at most 110 s, got 111 s/],
])("unsupported fields of ECS are rejected by path: %j", ([changes, expected]) => {
  expect(() => render(changes)).toThrow(expected);
});
