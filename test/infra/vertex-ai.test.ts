/**
 * Vertex AI's bodies, against the fields of UploadModelRequest and DeployModelRequest in Google's discovery document
 * aiplatform.v1 (google-api-python-client 2.202.0), read on 2026-11-22.
 */
import { expect, test } from "vitest";
import { z } from "zod";

import { loadConfig } from "../../functions/settings/config.ts";
import type { RenderedFile } from "../../infra/deployment-target.ts";
import { vertexAi } from "../../infra/vertex-ai.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";
import { variablesOf } from "../support/deployments/rendered-pods.ts";
import { chatBody, createTestApp } from "../support/service/test-app.ts";

const probe = z.strictObject({
  httpGet: z.strictObject({ path: z.string(), port: z.int() }),
  timeoutSeconds: z.int(),
  periodSeconds: z.int(),
  failureThreshold: z.int(),
});
const uploadModel = z.strictObject({
  modelId: z.string().max(63),
  model: z.strictObject({
    displayName: z.string(),
    containerSpec: z.strictObject({
      imageUri: z.string(),
      ports: z.array(z.strictObject({ containerPort: z.int() })),
      healthRoute: z.string(),
      predictRoute: z.string(),
      env: z.array(z.strictObject({ name: z.string(), value: z.string() })),
      deploymentTimeout: z.string().regex(/^\d+s$/),
      startupProbe: probe,
      healthProbe: probe,
      livenessProbe: probe,
    }),
  }),
});
const deployModel = z.strictObject({
  deployedModel: z.strictObject({
    model: z.string(),
    displayName: z.string(),
    dedicatedResources: z.strictObject({
      machineSpec: z.strictObject({
        machineType: z.string(),
        acceleratorType: z
          .enum(["NVIDIA_TESLA_T4", "NVIDIA_L4", "NVIDIA_A100_80GB", "NVIDIA_H100_80GB", "NVIDIA_RTX_PRO_6000"])
          .optional(),
        acceleratorCount: z.int().optional(),
      }),
      minReplicaCount: z.int().min(1),
      maxReplicaCount: z.int().min(1),
      autoscalingMetricSpecs: z.array(z.strictObject({ metricName: z.string(), target: z.int() })),
    }),
  }),
  trafficSplit: z.record(z.string(), z.int()),
});

const description = {
  name: "pictures",
  image: "europe-docker.pkg.dev/project/images/fovea:1.2.3",
  device: { kind: "cuda", gpu: "l4" },
  resources: { cpu: 4, memoryGiB: 16 },
  replicas: { min: 1, max: 2 },
};

function render(changes: object = {}) {
  const files = renderWith(vertexAi, description)(changes);
  return bodiesOf(files);
}

function bodiesOf(files: readonly RenderedFile[]) {
  const [upload, deploy] = files.map(({ text }) => JSON.parse(text) as unknown);
  const { deployedModel } = deployModel.parse(deploy);
  return { container: uploadModel.parse(upload).model.containerSpec, deployedModel };
}

testDeploymentTarget({
  target: vertexAi,
  read,
  takesCpu: true,
  maxGraceSeconds: 8,
  takesSecrets: false,
  scalesToZero: false,
  countsRequests: false,
});

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const { container, deployedModel } = bodiesOf(files);
  const { machineSpec, minReplicaCount, maxReplicaCount } = deployedModel.dedicatedResources;
  return {
    image: container.imageUri,
    port: container.ports[0]!.containerPort,
    ...variablesOf(container),
    readinessPath: container.healthRoute,
    livenessPath: container.livenessProbe.httpGet.path,
    secondsToEnd: null,
    numGpus: machineSpec.acceleratorCount ?? 0,
    replicas: { min: minReplicaCount, max: maxReplicaCount },
    concurrency: null,
  };
}

test("the container answers predictions at the route that the deployment names", async () => {
  const { container } = render();
  const { post } = createTestApp({
    config: loadConfig({
      ...variablesOf(container).environment,
      // The platform sets these from the fields of the container.
      AIP_HTTP_PORT: String(container.ports[0]!.containerPort),
      AIP_HEALTH_ROUTE: container.healthRoute,
      AIP_PREDICT_ROUTE: container.predictRoute,
    }),
  });
  const response = await post(container.predictRoute, { instances: [chatBody] });
  expect(await response.json()).toMatchObject({ predictions: [{ object: "chat.completion" }] });
});

test.for<[object, string, string | undefined]>([
  [{}, "g2-standard-4", "NVIDIA_L4"],
  [{ resources: { cpu: 8, memoryGiB: 40 } }, "g2-standard-12", "NVIDIA_L4"],
  [{ device: { kind: "cuda", gpu: "h100" } }, "a3-highgpu-1g", "NVIDIA_H100_80GB"],
  [{ device: { kind: "cpu" } }, "n2-standard-4", undefined],
])("%j gets the smallest machine that is large enough", ([changes, machineType, acceleratorType]) => {
  const { machineSpec } = render(changes).deployedModel.dedicatedResources;
  expect([machineSpec.machineType, machineSpec.acceleratorType]).toEqual([machineType, acceleratorType]);
});

test.for<[object, RegExp]>([
  [{ timeouts: { requestSeconds: 601 } }, /^timeouts\.requestSeconds: Vertex AI allows at most 600 s, got 601 s\.$/],
  [{ timeouts: { startupSeconds: 7201 } }, /^timeouts\.startupSeconds: Vertex AI allows at most 7200 s, got 7201 s\.$/],
  [{ device: { kind: "cuda", gpu: "h200" } }, /^device\.gpu: Vertex AI has t4, .*h100, not h200\.$/],
  [{ resources: { cpu: 64, memoryGiB: 16 } }, /^resources: Vertex AI has no machine with 64 CPUs and 16 GiB\.$/],
  [{ replicas: { min: 0, max: 1 } }, /^replicas\.min: Vertex AI keeps at least one replica; expected 1, got 0\.$/],
])("unsupported fields of Vertex AI are rejected by path: %j", ([changes, expected]) => {
  expect(() => render(changes)).toThrow(expected);
});
