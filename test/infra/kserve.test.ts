/**
 * KServe's InferenceService, against the fields of config/crd/full/serving.kserve.io_inferenceservices.yaml in
 * kserve/kserve, read on 2026-11-22; its pods against the schema of Kubernetes.
 */
import { Pod } from "kubernetes-models/v1";
import type { IContainer, IPodSpec } from "kubernetes-models/v1";
import { expect, test } from "vitest";
import { z } from "zod";

import type { RenderedFile } from "../../infra/deployment-target.ts";
import { kserve } from "../../infra/kserve.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";
import { objectsOf, readContainer } from "../support/deployments/rendered-pods.ts";

const scaling = z.object({
  minReplicas: z.int().min(0),
  maxReplicas: z.int().min(1),
  scaleMetric: z.enum(["cpu", "memory", "concurrency", "rps"]),
  scaleTarget: z.int().min(1),
  timeout: z.int().min(1),
});
const inferenceService = z.strictObject({
  apiVersion: z.literal("serving.kserve.io/v1beta1"),
  kind: z.literal("InferenceService"),
  metadata: z.strictObject({ name: z.string(), labels: z.record(z.string(), z.string()) }),
  spec: z.strictObject({ predictor: z.looseObject(scaling.shape) }),
});

const description = {
  name: "pictures",
  image: "registry.example.com/fovea:1.2.3",
  device: { kind: "cuda", gpu: "h100" },
  resources: { cpu: 4, memoryGiB: 16 },
  replicas: { min: 0, max: 2 },
};

const render = renderWith(kserve, description);

function predictorOf(files: readonly RenderedFile[]) {
  const { predictor } = inferenceService.parse(objectsOf(files)[0]).spec;
  const pod = Object.fromEntries(Object.entries(predictor).filter(([name]) => !(name in scaling.shape)));
  return { ...scaling.parse(predictor), pod: pod as unknown as IPodSpec };
}

testDeploymentTarget({ target: kserve, read, takesCpu: true, maxGraceSeconds: null });

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const { minReplicas, maxReplicas, scaleTarget, pod } = predictorOf(files);
  const container = pod.containers[0] as IContainer;
  return {
    ...readContainer(container),
    secondsToEnd: pod.terminationGracePeriodSeconds ?? null,
    replicas: { min: minReplicas, max: maxReplicas },
    concurrency: scaleTarget,
  };
}

test("the pods match the schema of Kubernetes, with a checkpoint from an OCI artifact too", () => {
  for (const changes of [{}, { model: "oci://registry.example.com/llava:1.0" }, { device: { kind: "cpu" } }]) {
    const { pod } = predictorOf(render(changes));
    expect(() => new Pod({ metadata: { name: "pictures" }, spec: pod }).validate()).not.toThrow();
    expect(pod.containers.map(({ name }) => name)).toEqual(["kserve-container"]);
  }
});
