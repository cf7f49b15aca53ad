/** KServe's InferenceService with a container of one's own, for both of its modes: Knative and standard Deployments. */
import { ConfigError } from "../functions/settings/setting.ts";
import { PORT, kubernetesSecretNames, queueProblems, secretNameProblems, unusedFields } from "./deployment-target.ts";
import type { DeploymentTarget } from "./deployment-target.ts";
import type { Deployment } from "./deployment.ts";
import { container, labels, podSpec, toFile } from "./kubernetes-pod.ts";

export const kserve: DeploymentTarget = {
  name: "kserve",
  platformVariables: [],
  render(deployment) {
    const problems = [
      ...queueProblems("KServe", deployment),
      ...secretNameProblems(deployment, kubernetesSecretNames),
      ...unusedFields("KServe", deployment, {
        repository: "mounts no repository of Hugging Face",
        asyncOutput: "has no asynchronous inference",
      }),
    ];
    if (problems.length > 0) throw new ConfigError(problems);
    return [toFile("inference-service", inferenceService(deployment))];
  },
};

function inferenceService(deployment: Deployment) {
  const { name, replicas, concurrency, timeouts } = deployment;
  const { containers: _, ...pod } = podSpec(deployment);
  const { ports, ...rest } = container(deployment);
  return {
    apiVersion: "serving.kserve.io/v1beta1",
    kind: "InferenceService",
    metadata: { name, labels: labels(deployment) },
    spec: {
      predictor: {
        minReplicas: replicas.min,
        maxReplicas: replicas.max,
        scaleMetric: "concurrency",
        scaleTarget: concurrency,
        timeout: timeouts.requestSeconds,
        ...pod,
        // KServe finds the container that serves by this name, and its protocol by the name of the port.
        containers: [
          {
            ...rest,
            name: "kserve-container",
            ports: ports.map(({ containerPort }) => ({ name: "http1", containerPort, protocol: "TCP" })),
            startupProbe: onNumber(rest.startupProbe),
            readinessProbe: onNumber(rest.readinessProbe),
            livenessProbe: onNumber(rest.livenessProbe),
          },
        ],
      },
    },
  };
}

function onNumber<Probe extends { readonly httpGet: { readonly path: string } }>(probe: Probe) {
  return { ...probe, httpGet: { ...probe.httpGet, port: PORT } };
}
