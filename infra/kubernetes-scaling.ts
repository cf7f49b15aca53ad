/** How many replicas Kubernetes keeps: none, KEDA's scaler on our metrics, or KEDA's HTTP add-on, which wakes from zero. */
import type { IScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1";

import type { Deployment } from "./deployment.ts";

/** Without traffic for so long, a replica goes; a cold start costs more than some idle minutes. */
const COOLDOWN_SECONDS = 300;
const POLLING_SECONDS = 15;

/**
 * Null where the number is fixed. Replicas that are all gone report no metrics, so to wake one takes the HTTP add-on,
 * which holds requests meanwhile; while there is always one, Prometheus knows how many sequences run and wait.
 */
export function scaledObject(deployment: Deployment) {
  const { replicas, prometheusUrl } = deployment;
  if (replicas.min === replicas.max) return null;
  if (replicas.min === 0 || prometheusUrl === null) return scaledByRequests(deployment);
  return scaledByMetrics(deployment, prometheusUrl);
}

function scaledByMetrics({ name, replicas, concurrency, config }: Deployment, serverAddress: string) {
  const model = JSON.stringify(config.servedModelNames[0]);
  const sum = (metric: string): string => `sum(${metric}{model_name=${model}})`;
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
      triggers: [
        {
          type: "prometheus",
          metadata: {
            serverAddress,
            query: `${sum("vllm:num_requests_running")} + ${sum("vllm:num_requests_waiting")}`,
            threshold: String(concurrency),
          },
        },
      ],
    },
  } satisfies IScaledObject;
}

function scaledByRequests({ name, hosts, replicas, concurrency, timeouts }: Deployment) {
  return {
    apiVersion: "http.keda.sh/v1alpha1",
    kind: "HTTPScaledObject",
    metadata: { name },
    spec: {
      hosts,
      scaleTargetRef: { name, kind: "Deployment", apiVersion: "apps/v1", service: name, portName: "http" },
      replicas,
      scalingMetric: { concurrency: { targetValue: concurrency } },
      scaledownPeriod: COOLDOWN_SECONDS,
      // A request that wakes a replica waits for its model; an answer that is not streamed begins when it is complete.
      timeouts: { conditionWait: `${timeouts.startupSeconds}s`, responseHeader: `${timeouts.requestSeconds}s` },
    },
  };
}
