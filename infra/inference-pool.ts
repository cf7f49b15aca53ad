/**
 * A fleet behind the Gateway API Inference Extension: the pods of `kubernetes.ts` as an InferencePool, the endpoint
 * picker of llm-d, which sends requests with equal prefixes to the same pod, and the route of a gateway.
 */
import type { IDeployment } from "kubernetes-models/apps/v1";
import type { IRole, IRoleBinding } from "kubernetes-models/rbac.authorization.k8s.io/v1";
import type { IConfigMap, IService, IServiceAccount } from "kubernetes-models/v1";
import { stringify } from "yaml";

import { ConfigError } from "../functions/settings/setting.ts";
import { PORT, unusedFields } from "./deployment-target.ts";
import type { DeploymentTarget } from "./deployment-target.ts";
import type { Deployment } from "./deployment.ts";
import { labels, toFile } from "./kubernetes-pod.ts";
import { renderObjects } from "./kubernetes.ts";

/** The release whose arguments and configuration these are. */
const pickerImage = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0";
const ports = { grpc: 9002, health: 9003, metrics: 9090 } as const;
/** The service that its probes ask about. */
const pickerService = "envoy.service.ext_proc.v3.ExternalProcessor";
/** Streams of requests in progress end with the picker. */
const PICKER_GRACE_SECONDS = 130;
/** The picker reads vLLM's names of metrics from pods with this label. */
const engineLabel = { "llm-d.ai/engine-type": "vllm" } as const;

export const inferencePool: DeploymentTarget = {
  name: "inference-pool",
  platformVariables: [],
  render(deployment) {
    const problems = problemsOf(deployment);
    if (problems.length > 0) throw new ConfigError(problems);
    const objects = {
      "inference-pool": pool(deployment),
      "http-route": route(deployment),
      "picker-service-account": serviceAccount(deployment),
      "picker-role": role(deployment),
      "picker-role-binding": roleBinding(deployment),
      "picker-configuration": configuration(deployment),
      "picker-deployment": picker(deployment),
      "picker-service": service(deployment),
    };
    return [
      ...renderObjects(deployment, engineLabel),
      ...Object.entries(objects).map(([name, object]) => toFile(name, object)),
    ];
  },
};

function problemsOf(deployment: Deployment): string[] {
  const { worker, replicas, prometheusUrl } = deployment;
  const problems = worker ? ["worker: an inference pool serves requests, which workers do not."] : [];
  if (replicas.min === 0) {
    problems.push("replicas.min: the endpoint picker wakes no pods; expected at least 1, got 0.");
  } else if (replicas.min !== replicas.max && prometheusUrl === null) {
    problems.push("prometheusUrl: it is missing; the pool is scaled by the metrics of its pods.");
  }
  return [
    ...problems,
    ...unusedFields("An inference pool", deployment, {
      repository: "mounts no repository of Hugging Face",
      asyncOutput: "has no asynchronous inference",
    }),
  ];
}

function pickerName({ name }: Deployment): string {
  return `${name}-picker`;
}

function pickerMetadata(deployment: Deployment) {
  return { name: pickerName(deployment), labels: pickerLabels(deployment) };
}

function pickerLabels({ name }: Deployment) {
  return { "app.kubernetes.io/name": "endpoint-picker", "app.kubernetes.io/instance": name };
}

function pool(deployment: Deployment) {
  return {
    apiVersion: "inference.networking.k8s.io/v1",
    kind: "InferencePool",
    metadata: { name: deployment.name, labels: labels(deployment) },
    spec: {
      selector: { matchLabels: labels(deployment) },
      targetPorts: [{ number: PORT }],
      // Without the picker, the gateway spreads requests over all pods.
      endpointPickerRef: {
        name: pickerName(deployment),
        port: { number: ports.grpc },
        failureMode: "FailOpen",
      },
    },
  };
}

/** The gateway is the user's, of any implementation that knows inference pools. */
function route(deployment: Deployment) {
  const { name, hosts, timeouts } = deployment;
  return {
    apiVersion: "gateway.networking.k8s.io/v1",
    kind: "HTTPRoute",
    metadata: { name, labels: labels(deployment) },
    spec: {
      parentRefs: [{ group: "gateway.networking.k8s.io", kind: "Gateway", name: "inference-gateway" }],
      hostnames: [...hosts],
      rules: [
        {
          matches: [{ path: { type: "PathPrefix", value: "/" } }],
          backendRefs: [{ group: "inference.networking.k8s.io", kind: "InferencePool", name }],
          timeouts: { request: `${timeouts.requestSeconds}s` },
        },
      ],
    },
  };
}

function serviceAccount(deployment: Deployment) {
  return { apiVersion: "v1", kind: "ServiceAccount", metadata: pickerMetadata(deployment) } satisfies IServiceAccount;
}

/** The picker watches the pool and its pods. */
function role(deployment: Deployment) {
  const verbs = ["get", "watch", "list"];
  return {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "Role",
    metadata: pickerMetadata(deployment),
    rules: [
      { apiGroups: ["inference.networking.k8s.io"], resources: ["inferencepools"], verbs },
      { apiGroups: ["llm-d.ai"], resources: ["inferenceobjectives", "inferencemodelrewrites"], verbs },
      { apiGroups: [""], resources: ["pods"], verbs },
    ],
  } satisfies IRole;
}

function roleBinding(deployment: Deployment) {
  const name = pickerName(deployment);
  return {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "RoleBinding",
    metadata: pickerMetadata(deployment),
    subjects: [{ kind: "ServiceAccount", name }],
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name },
  } satisfies IRoleBinding;
}

const configurationFile = "picker.yaml";

function configuration(deployment: Deployment) {
  const content = {
    apiVersion: "llm-d.ai/v1",
    kind: "EndpointPickerConfig",
    plugins: [
      { type: "prefix-cache-scorer" },
      { type: "queue-scorer" },
      { type: "kv-cache-utilization-scorer" },
      { type: "max-score-picker" },
      { type: "single-profile-handler" },
    ],
    schedulingProfiles: [
      {
        name: "default",
        plugins: [
          // A reused prefix saves more than an even load, until a pod queues.
          { pluginRef: "prefix-cache-scorer", weight: 3 },
          { pluginRef: "queue-scorer", weight: 2 },
          { pluginRef: "kv-cache-utilization-scorer", weight: 2 },
          { pluginRef: "max-score-picker" },
        ],
      },
    ],
  };
  return {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: pickerMetadata(deployment),
    data: { [configurationFile]: stringify(content) },
  } satisfies IConfigMap;
}

function picker(deployment: Deployment) {
  const name = pickerName(deployment);
  const probe = { grpc: { port: ports.health, service: pickerService }, periodSeconds: 10 };
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: pickerMetadata(deployment),
    spec: {
      // Each knows only the prefixes that it has routed itself.
      replicas: 1,
      selector: { matchLabels: pickerLabels(deployment) },
      template: {
        metadata: { labels: pickerLabels(deployment) },
        spec: {
          serviceAccountName: name,
          terminationGracePeriodSeconds: PICKER_GRACE_SECONDS,
          securityContext: { runAsNonRoot: true, runAsUser: 65532, seccompProfile: { type: "RuntimeDefault" } },
          containers: [
            {
              name: "picker",
              image: pickerImage,
              args: [
                "--pool-name",
                deployment.name,
                "--pool-namespace",
                "$(NAMESPACE)",
                "--grpc-port",
                String(ports.grpc),
                "--grpc-health-port",
                String(ports.health),
                "--config-file",
                `/etc/picker/${configurationFile}`,
                // Its metrics name no tenants, and a check of scrapers would need rights for the whole cluster.
                "--metrics-endpoint-auth=false",
              ],
              env: [{ name: "NAMESPACE", valueFrom: { fieldRef: { fieldPath: "metadata.namespace" } } }],
              ports: Object.entries(ports).map(([portName, containerPort]) => ({ name: portName, containerPort })),
              resources: { requests: { cpu: "500m", memory: "512Mi" }, limits: { memory: "2Gi" } },
              readinessProbe: probe,
              livenessProbe: probe,
              securityContext: {
                allowPrivilegeEscalation: false,
                readOnlyRootFilesystem: true,
                capabilities: { drop: ["ALL"] },
              },
              volumeMounts: [{ name: "configuration", mountPath: "/etc/picker", readOnly: true }],
            },
          ],
          volumes: [{ name: "configuration", configMap: { name } }],
        },
      },
    },
  } satisfies IDeployment;
}

function service(deployment: Deployment) {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: pickerMetadata(deployment),
    spec: {
      selector: pickerLabels(deployment),
      ports: [
        { name: "grpc", port: ports.grpc, targetPort: "grpc", appProtocol: "http2" },
        { name: "metrics", port: ports.metrics, targetPort: "metrics" },
      ],
    },
  } satisfies IService;
}
