/**
 * KServe's LLMInferenceService, against the fields of pkg/apis/serving/v1alpha2/llm_inference_service_types.go in
 * kserve/kserve (commit 01b1241), and the presets that it is merged with in config/llmisvcconfig; read on 2026-11-22. Its
 * pods against the schema of Kubernetes.
 */
import { Pod } from "kubernetes-models/v1";
import type { IContainer, IPodSpec } from "kubernetes-models/v1";
import { expect, test } from "vitest";
import { z } from "zod";

import type { RenderedFile } from "../../infra/deployment-target.ts";
import { kserveLlm } from "../../infra/kserve-llm.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";
import { objectsOf, readContainer } from "../support/deployments/rendered-pods.ts";

const managed = z.strictObject({});
const llmInferenceService = z.strictObject({
  apiVersion: z.literal("serving.kserve.io/v1alpha2"),
  kind: z.literal("LLMInferenceService"),
  metadata: z.strictObject({ name: z.string(), labels: z.record(z.string(), z.string()) }),
  spec: z.strictObject({
    model: z.strictObject({ uri: z.string().regex(/^[a-z0-9]+:\/\/\S+$/), name: z.string() }),
    storageInitializer: z.strictObject({ enabled: z.boolean() }),
    // Not together with `scaling`.
    replicas: z.int().min(0),
    router: z.strictObject({ route: managed, gateway: managed, scheduler: managed }),
    template: z.looseObject({ containers: z.array(z.looseObject({})).length(1) }),
  }),
});

const description = {
  name: "pictures",
  image: "registry.example.com/fovea:1.2.3",
  device: { kind: "cuda", gpu: "h100" },
  resources: { cpu: 4, memoryGiB: 16 },
  replicas: { min: 2, max: 2 },
};

const render = renderWith(kserveLlm, description);

function specOf(files: readonly RenderedFile[]) {
  const { spec } = llmInferenceService.parse(objectsOf(files)[0]);
  return { ...spec, pod: spec.template as unknown as IPodSpec };
}

testDeploymentTarget({
  target: kserveLlm,
  read,
  takesCpu: true,
  maxGraceSeconds: null,
  scales: false,
});

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const { replicas, pod } = specOf(files);
  const container = pod.containers[0] as IContainer;
  return {
    ...readContainer(container),
    secondsToEnd: pod.terminationGracePeriodSeconds ?? null,
    replicas: { min: replicas, max: replicas },
    concurrency: null,
  };
}

test("the pods match the schema of Kubernetes, with a checkpoint from an OCI artifact too", () => {
  for (const changes of [{}, { model: "oci://registry.example.com/llava:1.0" }, { device: { kind: "cpu" } }]) {
    const { pod } = specOf(render(changes));
    expect(() => new Pod({ metadata: { name: "pictures" }, spec: pod }).validate()).not.toThrow();
  }
});

test.for([
  ["s3://models/llava", "s3://models/llava"],
  ["org/llava", "hf://org/llava"],
  ["hf://org/llava@main", "hf://org/llava@main"],
  ["/models/llava", "file:///models/llava"],
  ["oci://registry.example.com/llava:1.0", "oci://registry.example.com/llava:1.0"],
])("the model %s is named %s, and KServe does not fetch it", ([model, uri]) => {
  expect(specOf(render({ model }))).toMatchObject({ model: { uri }, storageInitializer: { enabled: false } });
});

test("everything that the presets for vLLM set and the service does not want is replaced", () => {
  const container = specOf(render()).pod.containers[0]!;
  expect(container).toMatchObject({ name: "main", command: ["node", "/app/functions/cli/main.js"], args: ["serve"] });
  for (const probe of [container.startupProbe, container.readinessProbe, container.livenessProbe]) {
    expect(probe?.httpGet).toMatchObject({ scheme: "HTTP", port: 8000 });
  }
});

test("replicas that would have to scale are rejected", () => {
  expect(() => render({ replicas: { min: 1, max: 2 } })).toThrow(/^replicas: .* got 1 and 2\.$/);
});
