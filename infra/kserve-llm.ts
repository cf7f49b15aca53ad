/** KServe's LLMInferenceService: pods behind an HTTPRoute of the Gateway API and llm-d's scheduler. */
import { ConfigError } from "../functions/settings/setting.ts";
import { PORT, kubernetesSecretNames, queueProblems, secretNameProblems, unusedFields } from "./deployment-target.ts";
import type { DeploymentTarget } from "./deployment-target.ts";
import type { Deployment } from "./deployment.ts";
import { container, labels, podSpec, toFile } from "./kubernetes-pod.ts";

/** The container that KServe's presets for vLLM are merged into; what they set and this one lacks would be kept. */
const containerName = "main";

export const kserveLlm: DeploymentTarget = {
  name: "kserve-llm",
  platformVariables: [],
  render(deployment) {
    const { replicas } = deployment;
    const problems = [
      ...queueProblems("KServe", deployment),
      ...secretNameProblems(deployment, kubernetesSecretNames),
      ...(replicas.min === replicas.max
        ? []
        : [
            `replicas: LLMInferenceService scales by llm-d's autoscaler, which is not rendered; give min and max the same value, got ${replicas.min} and ${replicas.max}.`,
          ]),
      ...unusedFields("KServe", deployment, {
        repository: "mounts no repository of Hugging Face",
        asyncOutput: "has no asynchronous inference",
      }),
    ];
    if (problems.length > 0) throw new ConfigError(problems);
    return [toFile("llm-inference-service", llmInferenceService(deployment))];
  },
};

function llmInferenceService(deployment: Deployment) {
  const { name, replicas, config } = deployment;
  const { ports, ...main } = container(deployment);
  return {
    apiVersion: "serving.kserve.io/v1alpha2",
    kind: "LLMInferenceService",
    metadata: { name, labels: labels(deployment) },
    spec: {
      model: { uri: modelUri(deployment), name: config.servedModelNames[0] },
      // Fovea fetches the checkpoint itself, and KServe does not read the address then.
      storageInitializer: { enabled: false },
      replicas: replicas.max,
      router: { route: {}, gateway: {}, scheduler: {} },
      template: {
        ...podSpec(deployment),
        containers: [
          {
            ...main,
            name: containerName,
            command: ["node", "/app/functions/cli/main.js"],
            args: ["serve"],
            ports: ports.map(({ containerPort }) => ({ containerPort, protocol: "TCP" })),
            startupProbe: overHttp(main.startupProbe),
            readinessProbe: overHttp(main.readinessProbe),
            livenessProbe: overHttp(main.livenessProbe),
          },
        ],
      },
    },
  };
}

function modelUri({ config, modelImage }: Deployment): string {
  const { model } = config.engine;
  if (modelImage !== null) return `oci://${modelImage}`;
  if (model.includes("://")) return model;
  return model.startsWith("/") ? `file://${model}` : `hf://${model}`;
}

/** The presets' probes use TLS and a number. */
function overHttp<Probe extends { readonly httpGet: { readonly path: string } }>(probe: Probe) {
  return { ...probe, httpGet: { ...probe.httpGet, port: PORT, scheme: "HTTP" } };
}
