import { ScaledObject, TriggerAuthentication } from "@kubernetes-models/keda/keda.sh/v1alpha1";
import type { IScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1";
import { Deployment } from "kubernetes-models/apps/v1";
import type { IDeployment } from "kubernetes-models/apps/v1";
import { PodDisruptionBudget } from "kubernetes-models/policy/v1";
import { Service, ServiceAccount } from "kubernetes-models/v1";
import type { IContainer, IPodSpec } from "kubernetes-models/v1";
import { describe, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";

import { cloudRun } from "../../infra/cloud-run.ts";
import type { RenderedFile } from "../../infra/deployment-target.ts";
import { parseDeployment } from "../../infra/deployment.ts";
import { kubernetes } from "../../infra/kubernetes.ts";
import { runPod } from "../../infra/runpod.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";
import { readContainer } from "../support/deployments/rendered-pods.ts";

interface ApiObject {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly annotations?: Record<string, string> };
  readonly spec: Record<string, unknown>;
}

const description = {
  name: "pictures",
  image: "registry.example.com/fovea:1.2.3",
  device: { kind: "cuda", gpu: "a100-80gb" },
  resources: { cpu: 8, memoryGiB: 31.5 },
  replicas: { min: 1, max: 5 },
  s3Role: "arn:aws:iam::123456789012:role/pictures",
  prometheusUrl: "http://prometheus:9090",
  secrets: { API_KEY: "pictures-key" },
};

const render = renderWith(kubernetes, description);

function objectsOf(files: readonly RenderedFile[]): readonly ApiObject[] {
  return parseAllDocuments(files.map(({ text }) => text).join("")).map((document) => document.toJS() as ApiObject);
}

function find(files: readonly RenderedFile[], kind: string): ApiObject {
  const object = objectsOf(files).find((candidate) => candidate.kind === kind);
  if (object === undefined) throw new Error(`Nothing of the kind ${kind} was rendered.`);
  return object;
}

function deploymentOf(files: readonly RenderedFile[]): IDeployment {
  return find(files, "Deployment") as unknown as IDeployment;
}

function scaledObjectOf(files: readonly RenderedFile[]): IScaledObject {
  return find(files, "ScaledObject") as unknown as IScaledObject;
}

function podOf(files: readonly RenderedFile[]): { readonly spec: IPodSpec; readonly container: IContainer } {
  const { spec } = deploymentOf(files);
  const pod = spec?.template.spec;
  if (pod === undefined) throw new Error("The Deployment has no pod.");
  return { spec: pod, container: pod.containers[0]! };
}

const models: Readonly<Record<string, unknown>> = {
  ServiceAccount,
  Deployment,
  Service,
  PodDisruptionBudget,
  ScaledObject,
};

testDeploymentTarget({ target: kubernetes, read, takesCpu: true, maxGraceSeconds: null });

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const { spec, container } = podOf(files);
  const portName = container.startupProbe?.httpGet?.port;
  const preStopSeconds = container.lifecycle?.preStop?.sleep?.seconds ?? 0;
  expect(container.readinessProbe?.httpGet).toEqual(container.startupProbe?.httpGet);
  return {
    ...readContainer(container),
    port: container.ports?.find(({ name }) => name === portName)?.containerPort ?? 0,
    readinessPath: container.startupProbe?.httpGet?.path ?? "",
    // The hook before the signal takes its part of the time.
    secondsToEnd: (spec.terminationGracePeriodSeconds ?? 30) - preStopSeconds,
    ...scalingOf(files),
  };
}

function scalingOf(files: readonly RenderedFile[]): Pick<RenderedDeployment, "replicas" | "concurrency"> {
  const replicas = deploymentOf(files).spec?.replicas;
  if (replicas !== undefined) return { replicas: { min: replicas, max: replicas }, concurrency: null };
  const { spec } = scaledObjectOf(files);
  const route = find(files, "InterceptorRoute").spec as unknown as RequestScaling;
  return {
    replicas: { min: spec?.minReplicaCount ?? -1, max: spec?.maxReplicaCount ?? -1 },
    concurrency: route.scalingMetric.concurrency.targetValue,
  };
}

interface RequestScaling {
  readonly scalingMetric: { readonly concurrency: { readonly targetValue: number } };
}

test("every object matches its schema", () => {
  const files = render();
  expect(objectsOf(files).map(({ kind }) => kind)).toEqual([
    "ServiceAccount",
    "Deployment",
    "Service",
    "PodDisruptionBudget",
    "ScaledObject",
  ]);
  for (const { kind, ...object } of objectsOf(files)) {
    const Model = models[kind] as new (object: object) => { validate(): void };
    expect(() => new Model(object).validate()).not.toThrow();
  }
});

test("a schema rejects invalid objects, so the previous test can fail", () => {
  const object = scaledObjectOf(render());
  expect(() => new ScaledObject({ ...object, spec: { ...object.spec, triggers: 5 } } as never).validate()).toThrow(
    /triggers must be array/,
  );
});

test("with at least one replica, sequences in Prometheus determine the number of replicas", () => {
  const { spec } = scaledObjectOf(render({ concurrency: 24, environment: { SERVED_MODEL_NAME: "llava" } }));
  expect(spec).toMatchObject({ scaleTargetRef: { name: "pictures" }, minReplicaCount: 1, maxReplicaCount: 5 });
  expect(spec?.triggers[0]!.metadata).toEqual({
    serverAddress: "http://prometheus:9090",
    query: 'sum(vllm:num_requests_running{model_name="llava"}) + sum(vllm:num_requests_waiting{model_name="llava"})',
    threshold: "24",
  });
});

test("from zero, the HTTP add-on wakes a replica and holds requests for as long as a start may take", () => {
  const changes = { replicas: { min: 0, max: 2 }, hosts: ["pictures.example.com"], timeouts: { startupSeconds: 700 } };
  const files = render(changes);
  new ScaledObject(scaledObjectOf(files)).validate();
  expect(scaledObjectOf(files).spec).toMatchObject({
    minReplicaCount: 0,
    triggers: [{ type: "external-push", metadata: { interceptorRoute: "pictures" } }],
  });
  expect(find(files, "InterceptorRoute")).toMatchObject({
    metadata: { name: "pictures" },
    spec: {
      rules: [{ hosts: ["pictures.example.com"] }],
      target: { service: "pictures", portName: "http" },
      timeouts: { readiness: "700s" },
    },
  });
});

test("a fixed number of replicas needs no scaler", () => {
  const files = render({ replicas: { min: 2, max: 2 } });
  expect(files.map(({ path }) => path)).not.toContain("scaling.yaml");
  expect(deploymentOf(files).spec?.replicas).toBe(2);
});

test("pods run without privileges on a file system where only the cache and /tmp are writable", () => {
  const { spec, container } = podOf(render());
  expect(spec.securityContext?.runAsNonRoot).toBe(true);
  expect(container.securityContext).toMatchObject({ readOnlyRootFilesystem: true, allowPrivilegeEscalation: false });
  expect(container.volumeMounts?.map(({ mountPath }) => mountPath)).toEqual(["/var/cache/fovea", "/tmp"]);
});

test("pods run on nodes with the requested GPU and use the requested role", () => {
  const { spec, container } = podOf(render());
  expect(JSON.stringify(spec.affinity)).toContain("NVIDIA-A100-SXM4-80GB");
  expect(spec.tolerations).toEqual([{ key: "nvidia.com/gpu", operator: "Exists", effect: "NoSchedule" }]);
  expect(spec.serviceAccountName).toBe("pictures");
  expect(find(render(), "ServiceAccount").metadata.annotations).toEqual({
    "eks.amazonaws.com/role-arn": description.s3Role,
  });
  expect(container.resources?.requests).toEqual({ cpu: "8", memory: "32256Mi", "nvidia.com/gpu": "1" });
});

test("labels of the Service, the budget and the Deployment select the pods", () => {
  const files = render();
  const labels = deploymentOf(files).spec?.template.metadata?.labels;
  expect(deploymentOf(files).spec?.selector.matchLabels).toEqual(labels);
  expect(find(files, "Service").spec.selector).toEqual(labels);
  expect(find(files, "PodDisruptionBudget").spec.selector).toEqual({ matchLabels: labels });
});

describe("jobs", () => {
  const sqs = "sqs://sqs.eu-west-1.amazonaws.com/123456789012/pictures";
  const redis = "redis://redis.queues:6380/2?queue=pictures";

  function triggersOf(files: readonly RenderedFile[]) {
    return scaledObjectOf(files).spec?.triggers ?? [];
  }

  test("workers are scaled from zero by the length of an SQS queue, which KEDA reads with the replicas' role", () => {
    const files = render({
      worker: true,
      replicas: { min: 0, max: 8 },
      concurrency: 4,
      environment: { JOB_SOURCE: sqs },
    });
    const objects = objectsOf(files);
    expect(objects.map(({ kind }) => kind)).toEqual([
      "ServiceAccount",
      "Deployment",
      "PodDisruptionBudget",
      "TriggerAuthentication",
      "ScaledObject",
    ]);
    expect(podOf(files).container.args).toEqual(["worker"]);
    expect(triggersOf(files)).toEqual([
      {
        type: "aws-sqs-queue",
        metadata: {
          queueURL: "https://sqs.eu-west-1.amazonaws.com/123456789012/pictures",
          queueLength: "4",
          awsRegion: "eu-west-1",
        },
        authenticationRef: { name: "pictures" },
      },
    ]);
    const authentication = new TriggerAuthentication(find(files, "TriggerAuthentication"));
    expect(() => authentication.validate()).not.toThrow();
    expect(() => new ScaledObject(scaledObjectOf(files)).validate()).not.toThrow();
  });

  test("waiting and running jobs of BullMQ count, those with a priority too, beside requests", () => {
    const triggers = triggersOf(render({ concurrency: 4, environment: { JOB_SOURCE: redis } }));
    expect(triggers.map(({ type }) => type)).toEqual(["prometheus", "redis", "redis", "redis"]);
    expect(triggers.slice(1).map(({ metadata }) => metadata)).toEqual(
      ["wait", "prioritized", "active"].map((list) => ({
        address: "redis.queues:6380",
        databaseIndex: "2",
        listName: `bull:pictures:${list}`,
        listLength: "4",
      })),
    );
  });

  test.for<[string, object, object]>([
    [
      "amqp://rabbit.queues/pictures?queue=jobs",
      {},
      {
        type: "rabbitmq",
        metadata: {
          host: "http://rabbit.queues:15672/pictures",
          protocol: "http",
          queueName: "jobs",
          mode: "QueueLength",
          value: "4",
          excludeUnacknowledged: "false",
        },
      },
    ],
    [
      "amqps://rabbit.queues/?queue=jobs",
      { JOB_SOURCE_USERNAME: "fovea" },
      {
        type: "rabbitmq",
        metadata: {
          host: "https://rabbit.queues:15671/%2f",
          protocol: "http",
          queueName: "jobs",
          mode: "QueueLength",
          value: "4",
          excludeUnacknowledged: "false",
          usernameFromEnv: "JOB_SOURCE_USERNAME",
          passwordFromEnv: "JOB_SOURCE_PASSWORD",
        },
      },
    ],
    [
      "nats://nats.queues:4222/pictures/workers",
      {},
      {
        type: "nats-jetstream",
        metadata: {
          natsServerMonitoringEndpoint: "nats.queues:8222",
          account: "$G",
          stream: "pictures",
          consumer: "workers",
          lagThreshold: "4",
        },
      },
    ],
    [
      "pubsub://project/pictures",
      {},
      {
        type: "gcp-pubsub",
        metadata: {
          subscriptionName: "projects/project/subscriptions/pictures",
          mode: "SubscriptionSize",
          value: "4",
        },
        authenticationRef: { name: "pictures" },
      },
    ],
  ])("waiting and leased jobs of %s scale workers from zero", ([source, credentials, trigger]) => {
    const secrets = "JOB_SOURCE_USERNAME" in credentials ? { JOB_SOURCE_PASSWORD: "rabbit-password" } : {};
    const files = render({
      worker: true,
      replicas: { min: 0, max: 8 },
      concurrency: 4,
      environment: { JOB_SOURCE: source, ...credentials },
      secrets,
    });
    expect(triggersOf(files)).toEqual([trigger]);
    expect(() => new ScaledObject(scaledObjectOf(files)).validate()).not.toThrow();
    const authentication = objectsOf(files).find(({ kind }) => kind === "TriggerAuthentication");
    expect(authentication?.spec).toEqual(
      source.startsWith("pubsub") ? { podIdentity: { provider: "gcp" } } : undefined,
    );
    // KEDA resolves the variables of the container.
    const names = podOf(files).container.env?.map(({ name }) => name);
    for (const name of [...Object.keys(credentials), ...Object.keys(secrets)]) expect(names).toContain(name);
  });

  test("credentials of a BullMQ queue are read from the replicas' variables", () => {
    const secrets = { JOB_SOURCE_PASSWORD: "redis-password" };
    const [trigger] = triggersOf(render({ worker: true, environment: { JOB_SOURCE: redis }, secrets }));
    expect(trigger?.metadata).toMatchObject({ passwordFromEnv: "JOB_SOURCE_PASSWORD" });
  });

  test("unfinished batches keep a replica where Prometheus counts them", () => {
    const triggers = triggersOf(render({ environment: { BATCH_STORE: "s3://bucket/batches" } }));
    expect(triggers.map(({ metadata }) => metadata?.query)).toEqual([
      expect.stringContaining("num_requests_running"),
      expect.stringContaining("fovea_batches_unfinished"),
    ]);
  });

  test("a worker without a queue and a queue that cannot be counted are rejected", () => {
    expect(() => render({ worker: true })).toThrow(/worker: it needs environment.JOB_SOURCE/);
    const secrets = { JOB_SOURCE: "queue-address" };
    expect(() => render({ worker: true, secrets })).toThrow(/replicas: KEDA cannot read the length/);
    expect(render({ worker: true, secrets, replicas: { min: 2, max: 2 } })).toBeDefined();
    for (const target of [cloudRun, runPod]) {
      const asleep = { ...description, environment: { JOB_SOURCE: sqs }, replicas: { min: 0, max: 2 } };
      expect(() => target.render(parseDeployment(JSON.stringify(asleep)))).toThrow(
        /replicas.min: .* by requests alone/,
      );
    }
  });
});

test("a checkpoint from an OCI artifact is mounted read-only, and served from there", () => {
  const files = render({ model: "oci://registry.example.com/models/llava:1.0" });
  const { spec, container } = podOf(files);
  expect(spec?.volumes).toContainEqual({
    name: "model",
    image: { reference: "registry.example.com/models/llava:1.0", pullPolicy: "IfNotPresent" },
  });
  const { mountPath } = container.volumeMounts!.find(({ name }) => name === "model")!;
  expect(container.volumeMounts).toContainEqual({ name: "model", mountPath, readOnly: true });
  expect(container.env).toContainEqual({ name: "MODEL", value: mountPath });
  expect(() => new Deployment(deploymentOf(files)).validate()).not.toThrow();
  expect(() => render({ model: "oci://registry.example.com/models/llava:latest" })).toThrow(/^model: expected oci:/);
});
