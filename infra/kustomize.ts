/** The objects of `kubernetes.ts` as a Kustomize base, which overlays of the user patch. */
import type { DeploymentTarget } from "./deployment-target.ts";
import { toFile } from "./kubernetes-pod.ts";
import { kubernetes } from "./kubernetes.ts";

export const kustomize: DeploymentTarget = {
  name: "kustomize",
  platformVariables: [],
  render(deployment) {
    const files = kubernetes.render(deployment);
    const kustomization = {
      apiVersion: "kustomize.config.k8s.io/v1beta1",
      kind: "Kustomization",
      resources: files.map(({ path }) => path),
    };
    return [...files, toFile("kustomization", kustomization)];
  },
};
