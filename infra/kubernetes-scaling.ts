/** The number of Kubernetes replicas: fixed, or scaled by KEDA on our metrics or on the requests in progress. */
import type { IScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1";

import type { Deployment } from "./deployment.ts";

/** A replica ends after this time without traffic. A cold start costs more than a few idle minutes. */
const COOLDOWN_SECONDS = 300;
const POLLING_SECONDS = 15;
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
      triggers: [metricsTrigger(deployment) ?? requestsTrigger(deployment)],
    },
  } satisfies IScaledObject;
}

/**
 * Routes requests through the proxy of KEDA's HTTP add-on (0.14 and newer), which counts them and holds those that wake
 * a replica. Null if Prometheus counts, or the number is fixed.
 */
export function interceptorRoute(deployment: Deployment) {
  const { name, hosts, concurrency, replicas, timeouts } = deployment;
  if (replicas.min === replicas.max || metricsTrigger(deployment) !== null) return null;
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

function requestsTrigger({ name }: Deployment) {
  return { type: "external-push", metadata: { scalerAddress: httpScalerAddress, interceptorRoute: name } };
}
