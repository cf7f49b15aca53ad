/**
 * Knative Serving on a cluster of one's own, scaled to zero by requests. Nodes are not selected by the kind of GPU, and
 * the security of the pod is the cluster's: Knative rejects both unless the cluster turns these features on.
 */
import type { IService } from "@kubernetes-models/knative/serving.knative.dev/v1";

import { ConfigError } from "../functions/settings/setting.ts";
import {
  PORT,
  exceeded,
  kubernetesSecretNames,
  queueProblems,
  secretNameProblems,
  unusedFields,
} from "./deployment-target.ts";
import type { DeploymentTarget } from "./deployment-target.ts";
import type { Deployment } from "./deployment.ts";
import { container, graceSeconds, labels, podVolumes, toFile } from "./kubernetes-pod.ts";

/** `max-revision-timeout-seconds` of a cluster that was not configured. */
const MAX_REQUEST_SECONDS = 600;

export const knative: DeploymentTarget = {
  name: "knative",
  platformVariables: [],
  render(deployment) {
    const problems = problemsOf(deployment);
    if (problems.length > 0) throw new ConfigError(problems);
    return [toFile("service", service(deployment))];
  },
};

function problemsOf(deployment: Deployment): string[] {
  const { requestSeconds } = deployment.timeouts;
  return [
    ...exceeded("Knative", [
      ["timeouts.requestSeconds", requestSeconds, MAX_REQUEST_SECONDS, " s"],
      // The time between SIGTERM and SIGKILL is that of a request.
      ["timeouts.shutdownGraceSeconds", graceSeconds(deployment), requestSeconds - 1, " s"],
    ]),
    ...queueProblems("Knative", deployment),
    ...secretNameProblems(deployment, kubernetesSecretNames),
    ...unusedFields("Knative", deployment, {
      repository: "mounts no repository of Hugging Face",
      asyncOutput: "has no asynchronous inference",
      modelImage: "mounts no images; use s3:// or a folder of the image",
    }),
  ];
}

function service(deployment: Deployment) {
  const { name, replicas, concurrency, timeouts, s3Role } = deployment;
  // The platform probes the port of requests, and sets the time and the hook that end a container.
  const { startupProbe, lifecycle: _, ports, ...rest } = container(deployment);
  return {
    apiVersion: "serving.knative.dev/v1",
    kind: "Service",
    metadata: { name, labels: labels(deployment) },
    spec: {
      template: {
        metadata: {
          labels: labels(deployment),
          annotations: {
            "autoscaling.knative.dev/min-scale": String(replicas.min),
            "autoscaling.knative.dev/max-scale": String(replicas.max),
            "serving.knative.dev/progress-deadline": `${timeouts.startupSeconds}s`,
          },
        },
        spec: {
          ...(s3Role !== null && { serviceAccountName: name }),
          containerConcurrency: concurrency,
          timeoutSeconds: timeouts.requestSeconds,
          containers: [
            {
              ...rest,
              ports: ports.map(({ containerPort }) => ({ name: "http1", containerPort })),
              startupProbe: onNumber(startupProbe),
              readinessProbe: onNumber(rest.readinessProbe),
              livenessProbe: onNumber(rest.livenessProbe),
            },
          ],
          volumes: podVolumes(deployment),
        },
      },
    },
  } satisfies IService;
}

function onNumber<Probe extends { readonly httpGet: { readonly path: string } }>(probe: Probe) {
  return { ...probe, httpGet: { ...probe.httpGet, port: PORT } };
}
