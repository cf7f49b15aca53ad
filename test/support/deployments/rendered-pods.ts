/** Reads the parts of pods and containers that platforms on Kubernetes share. */
import type { IContainer } from "kubernetes-models/v1";
import { parse } from "yaml";

import type { RenderedFile } from "../../../infra/deployment-target.ts";
import type { RenderedDeployment } from "../../contracts/deployment-target.ts";

export interface KubernetesObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly annotations?: Readonly<Record<string, string>> };
}

export function objectsOf(files: readonly RenderedFile[]): KubernetesObject[] {
  return files.map(({ text }) => parse(text) as KubernetesObject);
}

export function variablesOf({ env = [] }: Pick<IContainer, "env">): {
  readonly environment: Record<string, string>;
  readonly secrets: Record<string, string>;
} {
  return {
    environment: Object.fromEntries(env.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]]))),
    secrets: Object.fromEntries(
      env.flatMap(({ name, valueFrom }) => (valueFrom ? [[name, valueFrom.secretKeyRef?.name ?? ""]] : [])),
    ),
  };
}

type ContainerPart = "image" | "port" | "environment" | "secrets" | "readinessPath" | "livenessPath" | "numGpus";

/** The parts of a deployment that its container has. */
export function readContainer(container: IContainer): Pick<RenderedDeployment, ContainerPart> {
  return {
    image: container.image ?? "",
    port: container.ports?.[0]?.containerPort ?? 0,
    ...variablesOf(container),
    readinessPath: container.readinessProbe?.httpGet?.path ?? null,
    livenessPath: container.livenessProbe?.httpGet?.path ?? null,
    numGpus: Number(container.resources?.limits?.["nvidia.com/gpu"] ?? 0),
  };
}
