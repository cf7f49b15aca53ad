/**
 * The endpoint of Hugging Face, against the payload of create_inference_endpoint in huggingface_hub 2.4.0 and the
 * custom image of https://api.endpoints.huggingface.cloud, read on 2026-11-22. The contract of the container is in
 * huggingface/hf-endpoints-documentation: any port, a health route that is probed every second, /repository.
 */
import { expect, test } from "vitest";
import { z } from "zod";

import type { RenderedFile } from "../../infra/deployment-target.ts";
import { huggingFace } from "../../infra/hugging-face.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";

const endpoint = z.strictObject({
  name: z.string().max(32),
  type: z.enum(["public", "protected", "private", "authenticated"]),
  provider: z.strictObject({ vendor: z.enum(["aws", "azure", "gcp"]), region: z.string() }),
  compute: z.strictObject({
    accelerator: z.enum(["cpu", "gpu", "neuron"]),
    instanceType: z.string(),
    instanceSize: z.string().regex(/^x\d+$/),
    scaling: z.strictObject({
      minReplica: z.int().min(0),
      maxReplica: z.int().min(1),
      scaleToZeroTimeout: z.int().min(15),
    }),
  }),
  model: z.strictObject({
    repository: z.string(),
    framework: z.literal("custom"),
    task: z.literal("custom"),
    image: z.strictObject({
      custom: z.strictObject({ url: z.string(), port: z.int(), healthRoute: z.string().startsWith("/") }),
    }),
    env: z.record(z.string(), z.string()),
  }),
});

const description = {
  name: "pictures",
  image: "docker.io/example/fovea:1.2.3",
  repository: "example/llava",
  device: { kind: "cuda", gpu: "l4" },
  resources: { cpu: 4, memoryGiB: 16 },
  replicas: { min: 0, max: 2 },
};

function render(changes: object = {}) {
  return endpointOf(renderWith(huggingFace, description)(changes));
}

function endpointOf([file]: readonly RenderedFile[]) {
  return endpoint.parse(JSON.parse(file!.text));
}

testDeploymentTarget({
  target: huggingFace,
  read,
  takesCpu: true,
  maxGraceSeconds: 8,
  takesSecrets: false,
  countsRequests: false,
  base: { repository: description.repository },
});

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const { compute, model } = endpointOf(files);
  const { url, port, healthRoute } = model.image.custom;
  return {
    image: url,
    port,
    environment: model.env,
    secrets: {},
    readinessPath: healthRoute,
    livenessPath: null,
    secondsToEnd: null,
    numGpus: compute.accelerator === "gpu" ? 1 : 0,
    replicas: { min: compute.scaling.minReplica, max: compute.scaling.maxReplica },
    concurrency: null,
  };
}

test("the mounted repository is served, unless the deployment names a model", () => {
  expect(render().model).toMatchObject({ repository: "example/llava", env: { MODEL: "/repository" } });
  expect(render({ model: "/models/llava" }).model.env.MODEL).toBe("/models/llava");
  expect(() => render({ repository: undefined })).toThrow(/^repository: it is missing/);
});
