/**
 * Kubernetes 1.30 and newer, with NVIDIA's device plugin for GPUs and KEDA for scaling: one file per object, ready for
 * `kubectl apply --filename folder`, or all of them as one stream.
 */
import type { IDeployment } from "kubernetes-models/apps/v1";
import type { IPodDisruptionBudget } from "kubernetes-models/policy/v1";
import type { IService, IServiceAccount } from "kubernetes-models/v1";

import { ConfigError } from "../functions/settings/setting.ts";
import { PORT, kubernetesSecretNames, secretNameProblems, unusedFields } from "./deployment-target.ts";
import type { DeploymentTarget, RenderedFile } from "./deployment-target.ts";
import type { Deployment } from "./deployment.ts";
import { labels, metadata, podSpec, toFile } from "./kubernetes-pod.ts";
import { interceptorRoute, queueAuthentication, scaledObject } from "./kubernetes-scaling.ts";

export const kubernetes: DeploymentTarget = {
  name: "kubernetes",
  platformVariables: [],
  render: (deployment) => renderObjects(deployment),
};

/** @param podLabels Of pods, in addition to those that select them. */
export function renderObjects(
  deployment: Deployment,
  podLabels: Readonly<Record<string, string>> = {},
): readonly RenderedFile[] {
  const problems = [
    ...secretNameProblems(deployment, kubernetesSecretNames),
    ...unusedFields("Kubernetes", deployment, {
      repository: "mounts no repository of Hugging Face",
      asyncOutput: "has no asynchronous inference",
    }),
  ];
  if (problems.length > 0) throw new ConfigError(problems);
  const objects: Readonly<Record<string, unknown>> = {
    "service-account": serviceAccount(deployment),
    deployment: workload(deployment, podLabels),
    service: deployment.worker ? null : service(deployment),
    "disruption-budget": disruptionBudget(deployment),
    "queue-authentication": queueAuthentication(deployment),
    scaling: scaledObject(deployment),
    route: interceptorRoute(deployment),
  };
  return Object.entries(objects).flatMap(([name, object]) => (object === null ? [] : [toFile(name, object)]));
}

/** Carries the role that EKS gives to pods; null without a role. */
function serviceAccount(deployment: Deployment) {
  if (deployment.s3Role === null) return null;
  const annotations = { "eks.amazonaws.com/role-arn": deployment.s3Role };
  return {
    apiVersion: "v1",
    kind: "ServiceAccount",
    metadata: { ...metadata(deployment), annotations },
  } satisfies IServiceAccount;
}

function workload(deployment: Deployment, podLabels: Readonly<Record<string, string>>) {
  const { replicas } = deployment;
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: metadata(deployment),
    spec: {
      // If KEDA sets the number, applying the manifest again must not reset it.
      ...(scaledObject(deployment) === null && { replicas: replicas.max }),
      selector: { matchLabels: labels(deployment) },
      strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } },
      template: {
        metadata: {
          labels: { ...labels(deployment), ...podLabels },
          annotations: { "prometheus.io/scrape": "true", "prometheus.io/port": String(PORT) },
        },
        spec: podSpec(deployment),
      },
    },
  } satisfies IDeployment;
}

function service(deployment: Deployment) {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: metadata(deployment),
    spec: { selector: labels(deployment), ports: [{ name: "http", port: 80, targetPort: "http" }] },
  } satisfies IService;
}

function disruptionBudget(deployment: Deployment) {
  return {
    apiVersion: "policy/v1",
    kind: "PodDisruptionBudget",
    metadata: metadata(deployment),
    spec: { maxUnavailable: 1, selector: { matchLabels: labels(deployment) } },
  } satisfies IPodDisruptionBudget;
}
