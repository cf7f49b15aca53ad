/** Which queue wakes a replica from zero on which platform: the table in infra/README.md. */
import { describe, expect, test } from "vitest";

import { ConfigError } from "../../functions/settings/setting.ts";
import type { DeploymentTarget } from "../../infra/deployment-target.ts";
import { parseDeployment } from "../../infra/deployment.ts";
import { deploymentTargets } from "../../infra/targets.ts";

const sources = {
  sqs: "sqs://sqs.eu-west-1.amazonaws.com/123456789012/pictures",
  redis: "redis://redis.queues:6379?queue=pictures",
  amqp: "amqp://rabbit.queues:5672/?queue=pictures",
  nats: "nats://nats.queues:4222/stream/consumer",
  pubsub: "pubsub://project/subscription",
  runpod: "runpod",
  secret: null,
} as const;

type Source = keyof typeof sources;

const fieldsToChange = ["replicas", "replicas.min", "worker", "environment.JOB_SOURCE"];

const kedaSources: readonly Source[] = ["sqs", "redis", "amqp", "nats", "pubsub"];

/** Queues that wake servers, and queues that wake workers. Platforms that are not here have none. */
const waking: Readonly<Record<string, { readonly servers: readonly Source[]; readonly workers: readonly Source[] }>> = {
  kubernetes: { servers: kedaSources, workers: kedaSources },
  kustomize: { servers: kedaSources, workers: kedaSources },
  "azure-container-apps": { servers: kedaSources.slice(0, 4), workers: kedaSources.slice(0, 4) },
  ecs: { servers: [], workers: ["sqs"] },
  runpod: { servers: [], workers: ["runpod"] },
};

/** What platforms need besides a queue. */
const needs: Readonly<Record<string, { readonly secrets?: object; readonly [field: string]: unknown }>> = {
  "azure-container-apps": {
    device: { kind: "cuda", gpu: "t4" },
    secrets: { AWS_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "key" },
    timeouts: { requestSeconds: 240 },
  },
  "hugging-face": { repository: "example/llava" },
  "inference-pool": { prometheusUrl: "http://prometheus" },
  sagemaker: { region: "eu-west-1", timeouts: { requestSeconds: 60 } },
};

function refusalOf(target: DeploymentTarget, source: Source, changes: object): string | null {
  const own = needs[target.name];
  const address = sources[source];
  const description = {
    name: "pictures",
    image: "registry.example.com/fovea:1.2.3",
    device: { kind: "cuda", gpu: "l4" },
    resources: { cpu: 4, memoryGiB: 16 },
    ...own,
    ...(address === null
      ? { secrets: { ...own?.secrets, JOB_SOURCE: "pictures-queue" } }
      : { environment: { JOB_SOURCE: address } }),
    ...changes,
  };
  try {
    target.render(parseDeployment(JSON.stringify(description)));
    return null;
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
}

const cases = deploymentTargets.flatMap((target) =>
  (Object.keys(sources) as Source[]).map((source) => [target.name, source, target] as const),
);

test.for(cases)(
  "%s with the queue %s: wakes from zero, or is rejected by the field to change",
  ([name, source, target]) => {
    for (const [kind, worker] of [
      ["servers", false],
      ["workers", true],
    ] as const) {
      const refusal = refusalOf(target, source, { worker, replicas: { min: 0, max: 2 } });
      const field = refusal === null ? null : refusal.split(":")[0];
      expect(waking[name]?.[kind].includes(source) === true ? [null] : fieldsToChange).toContain(field);
    }
  },
);

describe("a queue that a platform cannot read", () => {
  const kubernetes = deploymentTargets.find(({ name }) => name === "kubernetes")!;

  test("is allowed where replicas stay: the first is never taken", () => {
    expect(refusalOf(kubernetes, "secret", { replicas: { min: 1, max: 2 } })).toBeNull();
    expect(refusalOf(kubernetes, "secret", { worker: true, replicas: { min: 2, max: 2 } })).toBeNull();
  });

  test("wakes no server, which the error says", () => {
    expect(refusalOf(kubernetes, "secret", { replicas: { min: 0, max: 2 } })).toBe(
      "replicas.min: KEDA cannot read the length of a queue whose address is a secret, so a job would wake no replica; expected at least 1, got 0.",
    );
  });
});

test("RunPod's own queue is rejected everywhere but for workers on RunPod, because the service would not start", () => {
  for (const target of deploymentTargets.filter(({ name }) => name !== "ecs")) {
    const refusal = refusalOf(target, "runpod", { replicas: { min: 2, max: 2 } });
    expect(refusal, target.name).toMatch(/environment\.JOB_SOURCE: runpod is for workers on RunPod alone/);
  }
});
