import { Service } from "@kubernetes-models/knative/serving.knative.dev/v1";
import type { IService } from "@kubernetes-models/knative/serving.knative.dev/v1";
import { expect, test } from "vitest";

import type { RenderedFile } from "../../infra/deployment-target.ts";
import { knative } from "../../infra/knative.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";
import { objectsOf, readContainer } from "../support/deployments/rendered-pods.ts";

const description = {
  name: "pictures",
  image: "registry.example.com/fovea:1.2.3",
  device: { kind: "cuda", gpu: "l4" },
  resources: { cpu: 4, memoryGiB: 16 },
  replicas: { min: 0, max: 2 },
};

const render = renderWith(knative, description);

testDeploymentTarget({ target: knative, read, takesCpu: true, maxGraceSeconds: null });

function serviceOf(files: readonly RenderedFile[]): IService {
  return objectsOf(files)[0] as IService;
}

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const { metadata, spec } = serviceOf(files).spec!.template!;
  const container = spec!.containers[0]!;
  const annotations = metadata?.annotations ?? {};
  return {
    ...readContainer(container),
    // Knative gives a container as long as it gives a request.
    secondsToEnd: spec!.timeoutSeconds ?? null,
    replicas: {
      min: Number(annotations["autoscaling.knative.dev/min-scale"]),
      max: Number(annotations["autoscaling.knative.dev/max-scale"]),
    },
    concurrency: spec!.containerConcurrency ?? null,
  };
}

test("the service matches Knative's schema, and has none of the fields that Knative rejects by default", () => {
  const service = serviceOf(render({ s3Role: "arn:aws:iam::1:role/x" }));
  expect(() => new Service(service).validate()).not.toThrow();
  const { spec } = service.spec!.template!;
  expect(Object.keys(spec!).toSorted()).toEqual([
    "containerConcurrency",
    "containers",
    "serviceAccountName",
    "timeoutSeconds",
    "volumes",
  ]);
  expect(spec!.containers[0]).not.toHaveProperty("lifecycle");
});

test.for<[object, RegExp]>([
  [{ timeouts: { requestSeconds: 601 } }, /^timeouts\.requestSeconds: Knative allows at most 600 s, got 601 s\.$/],
  [
    { timeouts: { requestSeconds: 60, shutdownGraceSeconds: 60 } },
    /^timeouts\.shutdownGraceSeconds: Knative allows at most 59 s, got 60 s\.$/,
  ],
  [{ model: "oci://registry.example.com/llava:1" }, /^model: Knative mounts no images/],
  [{ worker: true, environment: { JOB_SOURCE: "redis://redis?queue=a" } }, /^worker: Knative scales by requests/],
])("unsupported fields of Knative are rejected by path: %j", ([changes, expected]) => {
  expect(() => render(changes)).toThrow(expected);
});
