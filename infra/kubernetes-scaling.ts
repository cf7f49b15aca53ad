/**
 * The number of Kubernetes replicas: fixed, or scaled by KEDA on our metrics or on the requests in progress, and on the
 * queue of jobs.
 */
import type { IScaledObject, ITriggerAuthentication } from "@kubernetes-models/keda/keda.sh/v1alpha1";

import { ConfigError } from "../functions/settings/setting.ts";
import { hasQueue } from "./deployment-target.ts";
import type { Deployment } from "./deployment.ts";

/** A replica ends after this time without traffic. A cold start costs more than a few idle minutes. */
const COOLDOWN_SECONDS = 300;
const POLLING_SECONDS = 15;
/** Of NATS servers, as their chart sets it. */
const NATS_MONITORING_PORT = 8222;
/** Address of KEDA's HTTP add-on, as installed by its chart. */
const httpScalerAddress = "keda-add-ons-http-external-scaler.keda:9090";

/** Null if the number is fixed. */
export function scaledObject(deployment: Deployment) {
  const { name, replicas } = deployment;
  if (replicas.min === replicas.max) return null;
  return {
    apiVersion: "keda.sh/v1alpha1",
    kind: "ScaledObject",
    metadata: { name },
    spec: {
      scaleTargetRef: { name },
      minReplicaCount: replicas.min,
      maxReplicaCount: replicas.max,
      pollingInterval: POLLING_SECONDS,
      cooldownPeriod: COOLDOWN_SECONDS,
      advanced: {
        horizontalPodAutoscalerConfig: { behavior: { scaleDown: { stabilizationWindowSeconds: COOLDOWN_SECONDS } } },
      },
      triggers: triggersOf(deployment),
    },
  } satisfies IScaledObject;
}

function triggersOf(deployment: Deployment) {
  const { worker, replicas } = deployment;
  const ofQueue = queueTriggers(deployment);
  if (hasQueue(deployment) && ofQueue.length === 0 && (worker || replicas.min === 0)) {
    const problem = "KEDA cannot read the length of a queue whose address is a secret";
    throw new ConfigError([
      worker
        ? `replicas: ${problem}; give min and max the same value.`
        : `replicas.min: ${problem}, so a job would wake no replica; expected at least 1, got 0.`,
    ]);
  }
  const ofRequests = worker ? [] : [metricsTrigger(deployment) ?? requestsTrigger(deployment)];
  return [...ofRequests, ...batchTriggers(deployment), ...ofQueue];
}

/**
 * Routes requests through the proxy of KEDA's HTTP add-on (0.14 and newer), which counts them and holds those that wake
 * a replica. Null if Prometheus counts, or the number is fixed.
 */
export function interceptorRoute(deployment: Deployment) {
  const { name, hosts, concurrency, replicas, timeouts } = deployment;
  if (deployment.worker || replicas.min === replicas.max || metricsTrigger(deployment) !== null) return null;
  return {
    apiVersion: "http.keda.sh/v1beta1",
    kind: "InterceptorRoute",
    metadata: { name },
    spec: {
      target: { service: name, portName: "http" },
      rules: [{ hosts }],
      scalingMetric: { concurrency: { targetValue: concurrency } },
      // An answer that is not streamed starts when it is complete.
      timeouts: { readiness: `${timeouts.startupSeconds}s`, responseHeader: `${timeouts.requestSeconds}s` },
    },
  };
}

/** Also null when scaling from zero: without replicas there are no metrics, and nothing would wake one. */
function metricsTrigger({ replicas, prometheusUrl, concurrency, config }: Deployment) {
  if (replicas.min === 0 || prometheusUrl === null) return null;
  const model = JSON.stringify(config.servedModelNames[0]);
  const sum = (metric: string): string => `sum(${metric}{model_name=${model}})`;
  return {
    type: "prometheus",
    metadata: {
      serverAddress: prometheusUrl,
      query: `${sum("vllm:num_requests_running")} + ${sum("vllm:num_requests_waiting")}`,
      threshold: String(concurrency),
    },
  };
}

/** A replica that works on batches stays. Batches cannot wake one, because only replicas know of them. */
function batchTriggers({ replicas, prometheusUrl, config }: Deployment) {
  if (replicas.min === 0 || prometheusUrl === null || config.batches.store.kind === "none") return [];
  const model = JSON.stringify(config.servedModelNames[0]);
  const query = `max(fovea_batches_unfinished{model_name=${model}})`;
  return [{ type: "prometheus", metadata: { serverAddress: prometheusUrl, query, threshold: "1" } }];
}

/** Counts jobs that wait and jobs that replicas have, so that a job wakes a replica and keeps it. */
export function queueTriggers(deployment: Deployment) {
  const { name, concurrency, s3Role, config } = deployment;
  const { source } = config.jobs;
  if (source === null) return [];
  const address = new URL(source);
  const length = String(concurrency);
  switch (address.protocol) {
    case "sqs:": {
      const awsRegion =
        /^sqs\.([a-z0-9-]+)\.amazonaws\./.exec(address.hostname)?.[1] ?? config.s3.region ?? "us-east-1";
      const queueURL = `https://${address.host}${address.pathname}`;
      const identity = s3Role === null ? {} : { authenticationRef: { name } };
      return [{ type: "aws-sqs-queue", metadata: { queueURL, queueLength: length, awsRegion }, ...identity }];
    }
    case "redis:":
    case "rediss:": {
      const { searchParams, port, hostname, protocol, pathname } = address;
      const queue = `${searchParams.get("prefix") ?? "bull"}:${searchParams.get("queue")}`;
      const server = {
        address: `${hostname}:${port === "" ? "6379" : port}`,
        databaseIndex: pathname.slice(1) || "0",
        ...(protocol === "rediss:" && { enableTLS: "true" }),
        ...credentialsFromEnvironment(deployment),
      };
      // KEDA takes the largest number of replicas that a trigger asks for, and counts sorted sets like lists. Jobs with a
      // priority wait in a set of their own.
      return ["wait", "prioritized", "active"].map((list) => ({
        type: "redis",
        metadata: { ...server, listName: `${queue}:${list}`, listLength: length },
      }));
    }
    case "amqp:":
    case "amqps:": {
      const { hostname, protocol, pathname, searchParams } = address;
      const problem = halfCredentials(deployment);
      if (problem !== null) throw new ConfigError([problem]);
      // By AMQP, messages that workers have are not counted: a queue that they have emptied would look done.
      const managementUrl = protocol === "amqps:" ? `https://${hostname}:15671` : `http://${hostname}:15672`;
      const metadata = {
        host: `${managementUrl}/${pathname.slice(1) || "%2f"}`,
        protocol: "http",
        queueName: searchParams.get("queue") ?? "",
        mode: "QueueLength",
        value: length,
        excludeUnacknowledged: "false",
        ...credentialsFromEnvironment(deployment),
      };
      return [{ type: "rabbitmq", metadata }];
    }
    case "nats:":
    case "nats+tls:": {
      const [stream = "", consumer = ""] = address.pathname.slice(1).split("/");
      const metadata = {
        natsServerMonitoringEndpoint: `${address.hostname}:${NATS_MONITORING_PORT}`,
        account: "$G",
        stream,
        consumer,
        lagThreshold: length,
      };
      return [{ type: "nats-jetstream", metadata }];
    }
    case "pubsub:": {
      const subscriptionName = `projects/${address.hostname}/subscriptions/${address.pathname.slice(1)}`;
      const metadata = { subscriptionName, mode: "SubscriptionSize", value: length };
      return [{ type: "gcp-pubsub", metadata, authenticationRef: { name } }];
    }
    default:
      return [];
  }
}

/** KEDA's scaler of RabbitMQ stops at a user name without a password, and the reverse. Null if there is no such problem. */
function halfCredentials(deployment: Deployment): string | null {
  const names = Object.values(credentialsFromEnvironment(deployment));
  if (names.length !== 1) return null;
  const missing = names[0] === "JOB_SOURCE_USERNAME" ? "JOB_SOURCE_PASSWORD" : "JOB_SOURCE_USERNAME";
  return `${missing}: it is missing; KEDA reads a queue of RabbitMQ with both or neither.`;
}

/** Names of variables of the replicas, which KEDA reads, secrets included. */
function credentialsFromEnvironment({ environment, secrets }: Deployment): Readonly<Record<string, string>> {
  const has = (name: string): boolean => name in environment || name in secrets;
  return {
    ...(has("JOB_SOURCE_USERNAME") && { usernameFromEnv: "JOB_SOURCE_USERNAME" }),
    ...(has("JOB_SOURCE_PASSWORD") && { passwordFromEnv: "JOB_SOURCE_PASSWORD" }),
  };
}

/**
 * Lets KEDA read the length of the queue: with the replicas' own role on AWS, and that of KEDA's service account on
 * Google Cloud. Null where it needs neither.
 */
export function queueAuthentication(deployment: Deployment) {
  if (scaledObject(deployment) === null) return null;
  const trigger = queueTriggers(deployment).find((candidate) => "authenticationRef" in candidate);
  if (trigger === undefined) return null;
  return {
    apiVersion: "keda.sh/v1alpha1",
    kind: "TriggerAuthentication",
    metadata: { name: deployment.name },
    spec: {
      podIdentity: trigger.type === "gcp-pubsub" ? { provider: "gcp" } : { provider: "aws", identityOwner: "workload" },
    },
  } satisfies ITriggerAuthentication;
}

function requestsTrigger({ name }: Deployment) {
  return { type: "external-push", metadata: { scalerAddress: httpScalerAddress, interceptorRoute: name } };
}
