/** Names of secrets on Kubernetes, which rejects objects that refer to others. */
import { expect, test } from "vitest";

import { inferencePool } from "../../infra/inference-pool.ts";
import { knative } from "../../infra/knative.ts";
import { kserveLlm } from "../../infra/kserve-llm.ts";
import { kserve } from "../../infra/kserve.ts";
import { kubernetes } from "../../infra/kubernetes.ts";
import { kustomize } from "../../infra/kustomize.ts";
import { renderWith } from "../support/deployments/render-with.ts";

const targets = [kubernetes, kustomize, inferencePool, knative, kserve, kserveLlm].map(
  (target) => [target.name, target] as const,
);
const description = {
  name: "pictures",
  image: "registry.example.com/fovea:1.2.3",
  device: { kind: "cpu" },
  resources: { cpu: 4, memoryGiB: 8 },
  replicas: { min: 1, max: 1 },
};

test.for(targets)("%s takes the names of Secrets and rejects others without showing them", ([, target]) => {
  const render = renderWith(target, description);
  for (const secret of ["api-key", "0.api.key"]) {
    expect(render({ secrets: { API_KEY: secret } }).some(({ text }) => text.includes(secret))).toBe(true);
  }
  for (const secret of ["Api-Key", "api_key", "api-", "a..b"]) {
    expect(() => render({ secrets: { API_KEY: secret } })).toThrow(
      /^secrets\.API_KEY: expected the name of a Kubernetes Secret: lower-case letters, digits, dashes and dots\.$/,
    );
  }
});
