/** Reads the parts of pods and containers that platforms on Kubernetes share. */
import type { IContainer } from "kubernetes-models/v1";
import { parse } from "yaml";

import type { RenderedFile } from "../../../infra/deployment-target.ts";

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
