/** Kustomize's base, against the fields of kustomize.config.k8s.io/v1beta1, read on 2026-11-22. */
import { expect, test } from "vitest";
import { parse } from "yaml";
import { z } from "zod";

import { parseDeployment } from "../../infra/deployment.ts";
import { kubernetes } from "../../infra/kubernetes.ts";
import { kustomize } from "../../infra/kustomize.ts";
import { deploymentTargets } from "../../infra/targets.ts";

const kustomization = z.strictObject({
  apiVersion: z.literal("kustomize.config.k8s.io/v1beta1"),
  kind: z.literal("Kustomization"),
  resources: z.array(z.string()),
});

test("the base has the objects of Kubernetes, all of them as resources", () => {
  const deployment = parseDeployment(
    JSON.stringify({
      name: "pictures",
      image: "registry.example.com/fovea:1.2.3",
      device: { kind: "cuda", gpu: "l4" },
      resources: { cpu: 4, memoryGiB: 16 },
      replicas: { min: 0, max: 2 },
      s3Role: "arn:aws:iam::1:role/x",
    }),
  );
  const files = kustomize.render(deployment);
  expect(files.slice(0, -1)).toEqual(kubernetes.render(deployment));
  expect(files.at(-1)!.path).toBe("kustomization.yaml");
  const { resources } = kustomization.parse(parse(files.at(-1)!.text));
  expect(resources).toEqual(files.slice(0, -1).map(({ path }) => path));
  expect(deploymentTargets).toContain(kustomize);
});
