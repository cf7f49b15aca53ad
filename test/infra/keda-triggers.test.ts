/**
 * The metadata of KEDA's triggers, held to the fields that its scalers read: the `keda:"name=..."` tags and `Validate`
 * methods of `pkg/scalers/*_scaler.go` in github.com/kedacore/keda, commit 8b4f083 of 2026-08-20 (after 2.20.2). KEDA
 * ignores other fields. Where a tag has `order=resolvedEnv`, `NAMEFromEnv` names a variable of the container instead.
 */
import { expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { z } from "zod";

import { azureContainerApps } from "../../infra/azure-container-apps.ts";
import type { RenderedFile } from "../../infra/deployment-target.ts";
import { parseDeployment } from "../../infra/deployment.ts";
import { kubernetes } from "../../infra/kubernetes.ts";

const text = z.string().min(1);
const integer = z.string().regex(/^\d+$/);
const number = z.string().regex(/^\d+(\.\d+)?$/);
const flag = z.enum(["true", "false"]);
const address = z.string().regex(/^[\w.-]+:\d+$/);
const credentials = { usernameFromEnv: text.optional(), passwordFromEnv: text.optional() };

const triggers = {
  rabbitmq: z
    .strictObject({
      host: z.url({ protocol: /^https?$/ }),
      protocol: z.literal("http"),
      queueName: text,
      mode: z.literal("QueueLength"),
      value: number,
      excludeUnacknowledged: flag,
      ...credentials,
    })
    .refine(
      ({ usernameFromEnv, passwordFromEnv }) => (usernameFromEnv === undefined) === (passwordFromEnv === undefined),
      "username and password must be given together",
    ),
  "nats-jetstream": z.strictObject({
    natsServerMonitoringEndpoint: address,
    account: text,
    stream: text,
    consumer: text,
    lagThreshold: integer,
  }),
  "gcp-pubsub": z.strictObject({ subscriptionName: text, mode: z.literal("SubscriptionSize"), value: number }),
  "aws-sqs-queue": z.strictObject({ queueURL: z.url(), queueLength: integer, awsRegion: text }),
  redis: z.strictObject({
    address,
    databaseIndex: integer,
    enableTLS: flag.optional(),
    listName: text,
    listLength: integer,
    ...credentials,
  }),
  prometheus: z.strictObject({ serverAddress: z.url(), query: text, threshold: number }),
  "external-push": z.strictObject({ scalerAddress: address, interceptorRoute: text }),
} as const;

/** Fields of `authParams` in the same files, and in `pkg/scalers/aws/aws_common.go`. */
const parameters: Readonly<Record<string, readonly string[]>> = {
  rabbitmq: ["username", "password"],
  redis: ["username", "password"],
  "aws-sqs-queue": ["awsAccessKeyID", "awsSecretAccessKey"],
};

const description = {
  name: "pictures",
  image: "registry.example.com/fovea:1.2.3",
  device: { kind: "cuda", gpu: "a100-80gb" },
  resources: { cpu: 8, memoryGiB: 31 },
  replicas: { min: 0, max: 5 },
  timeouts: { requestSeconds: 200 },
};
const user = { JOB_SOURCE_USERNAME: "fovea" };
const password = { JOB_SOURCE_PASSWORD: "queue-password" };

const queues: readonly [string, object, object][] = [
  ["sqs://sqs.eu-west-1.amazonaws.com/123456789012/pictures", {}, {}],
  ["redis://redis.queues:6380/2?queue=pictures", {}, password],
  ["rediss://redis.queues?queue=pictures&prefix=jobs", user, password],
  ["amqp://rabbit.queues/pictures?queue=jobs", {}, {}],
  ["amqps://rabbit.queues/?queue=jobs", user, password],
  ["nats://nats.queues:4222/pictures/workers", {}, {}],
  ["nats+tls://nats.queues/pictures/workers", user, password],
  ["pubsub://project/pictures", {}, {}],
];

interface Trigger {
  readonly type: string;
  readonly metadata: unknown;
}

function triggersOf(files: readonly RenderedFile[]): readonly Trigger[] {
  const objects = parseAllDocuments(files.map((file) => file.text).join("")).map(
    (document) =>
      document.toJS() as { readonly kind: string; readonly spec: { readonly triggers: readonly Trigger[] } },
  );
  return objects.find(({ kind }) => kind === "ScaledObject")?.spec.triggers ?? [];
}

function check({ type, metadata }: Trigger): void {
  expect(Object.keys(triggers)).toContain(type);
  triggers[type as keyof typeof triggers].parse(metadata);
}

test.for(queues)("KEDA's scaler of %s reads every field that Kubernetes gets", ([source, environment, secrets]) => {
  for (const changes of [{ worker: true }, {}, { replicas: { min: 1, max: 5 }, prometheusUrl: "http://prometheus" }]) {
    const deployment = {
      ...description,
      ...changes,
      environment: { JOB_SOURCE: source, BATCH_STORE: "s3://bucket/batches", ...environment },
      secrets,
    };
    const found = triggersOf(kubernetes.render(parseDeployment(JSON.stringify(deployment))));
    expect(found.length).toBeGreaterThan("worker" in changes ? 0 : 1);
    for (const trigger of found) check(trigger);
  }
});

test.for(queues.filter(([source]) => !source.startsWith("pubsub")))(
  "KEDA's scaler of %s reads every field that Azure gets",
  ([source, environment, secrets]) => {
    const keys = { AWS_ACCESS_KEY_ID: "key-id", AWS_SECRET_ACCESS_KEY: "key-secret" };
    const all = {
      ...("JOB_SOURCE_USERNAME" in environment && { JOB_SOURCE_USERNAME: "queue-user" }),
      ...secrets,
      ...(source.startsWith("sqs") && keys),
    };
    const needsUser = source.startsWith("redis:") ? { JOB_SOURCE_USERNAME: "queue-user" } : {};
    const deployment = {
      ...description,
      worker: true,
      environment: { JOB_SOURCE: source },
      secrets: { ...needsUser, ...all },
    };
    const [file] = azureContainerApps.render(parseDeployment(JSON.stringify(deployment)));
    const template = JSON.parse(file!.text) as {
      readonly resources: readonly {
        readonly properties: {
          readonly template: {
            readonly scale: {
              readonly rules: readonly {
                readonly custom: Trigger & { readonly auth: readonly { readonly triggerParameter: string }[] };
              }[];
            };
          };
        };
      }[];
    };
    const { rules } = template.resources[0]!.properties.template.scale;
    expect(rules.length).toBeGreaterThan(0);
    for (const { custom } of rules) {
      check(custom);
      for (const { triggerParameter } of custom.auth) expect(parameters[custom.type]).toContain(triggerParameter);
    }
  },
);

test.for([
  [user, {}],
  [{}, password],
] as const)("RabbitMQ's user name without its password is rejected, and the reverse", ([environment, secrets]) => {
  const deployment = {
    ...description,
    worker: true,
    environment: { JOB_SOURCE: "amqp://rabbit.queues/?queue=jobs", ...environment },
    secrets,
  };
  expect(() => kubernetes.render(parseDeployment(JSON.stringify(deployment)))).toThrow(
    /^JOB_SOURCE_(USERNAME|PASSWORD): it is missing; KEDA reads a queue of RabbitMQ with both or neither\.$/,
  );
});
