/**
 * A fleet: InferencePool against the fields of inference.networking.k8s.io/v1 (kubernetes-sigs/
 * gateway-api-inference-extension v1.6.0, site-src/reference/spec.md), HTTPRoute against those of
 * gateway.networking.k8s.io/v1, and the picker's configuration against llm-d.ai/v1 (llm-d/llm-d-router,
 * deploy/config), all read on 2026-11-22. Other objects match the schemas of Kubernetes. What the picker asks of a pod is
 * in test/functions/api/platforms/endpoint-picker.test.ts.
 */
import { Deployment as DeploymentModel } from "kubernetes-models/apps/v1";
import type { IDeployment } from "kubernetes-models/apps/v1";
import { Role, RoleBinding } from "kubernetes-models/rbac.authorization.k8s.io/v1";
import { ConfigMap, Service, ServiceAccount } from "kubernetes-models/v1";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { z } from "zod";

import type { RenderedFile } from "../../infra/deployment-target.ts";
import { inferencePool } from "../../infra/inference-pool.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";
import { objectsOf, readContainer } from "../support/deployments/rendered-pods.ts";

const labels = z.record(z.string(), z.string().max(63));
const metadata = z.strictObject({ name: z.string().max(63), labels });
const pool = z.strictObject({
  apiVersion: z.literal("inference.networking.k8s.io/v1"),
  kind: z.literal("InferencePool"),
  metadata,
  spec: z.strictObject({
    selector: z.strictObject({ matchLabels: labels }),
    targetPorts: z
      .array(z.strictObject({ number: z.int().min(1).max(65_535) }))
      .min(1)
      .max(8),
    endpointPickerRef: z.strictObject({
      group: z.string().optional(),
      kind: z.string().optional(),
      name: z.string().min(1).max(253),
      port: z.strictObject({ number: z.int().min(1).max(65_535) }),
      failureMode: z.enum(["FailOpen", "FailClose"]),
    }),
  }),
});
const reference = z.strictObject({ group: z.string(), kind: z.string(), name: z.string() });
const httpRoute = z.strictObject({
  apiVersion: z.literal("gateway.networking.k8s.io/v1"),
  kind: z.literal("HTTPRoute"),
  metadata,
  spec: z.strictObject({
    parentRefs: z.array(reference),
    hostnames: z.array(z.string()),
    rules: z.array(
      z.strictObject({
        matches: z.array(
          z.strictObject({ path: z.strictObject({ type: z.enum(["Exact", "PathPrefix"]), value: z.string() }) }),
        ),
        backendRefs: z.array(reference),
        timeouts: z.strictObject({ request: z.string().regex(/^([0-9]{1,5}(h|m|s|ms)){1,4}$/) }),
      }),
    ),
  }),
});
const configuration = z.strictObject({
  apiVersion: z.literal("llm-d.ai/v1"),
  kind: z.literal("EndpointPickerConfig"),
  plugins: z.array(z.strictObject({ type: z.string() })),
  schedulingProfiles: z.array(
    z.strictObject({
      name: z.string(),
      plugins: z.array(z.strictObject({ pluginRef: z.string(), weight: z.number().optional() })),
    }),
  ),
});

const description = {
  name: "pictures",
  image: "registry.example.com/fovea:1.2.3",
  device: { kind: "cuda", gpu: "l4" },
  resources: { cpu: 4, memoryGiB: 16 },
  replicas: { min: 2, max: 6 },
  prometheusUrl: "http://prometheus.monitoring",
};

const render = renderWith(inferencePool, description);

function textOf(files: readonly RenderedFile[], path: string): unknown {
  return parse(files.find((file) => file.path === path)!.text);
}

testDeploymentTarget({
  target: inferencePool,
  read,
  takesCpu: true,
  maxGraceSeconds: null,
  scalesToZero: false,
  base: { prometheusUrl: description.prometheusUrl },
});

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const { spec } = (textOf(files, "deployment.yaml") as IDeployment).spec!.template;
  const container = spec!.containers[0]!;
  const scaling = files.some(({ path }) => path === "scaling.yaml")
    ? (textOf(files, "scaling.yaml") as {
        spec: { minReplicaCount: number; maxReplicaCount: number; triggers: { metadata: { threshold: string } }[] };
      })
    : null;
  const fixed = (textOf(files, "deployment.yaml") as IDeployment).spec!.replicas ?? 0;
  return {
    ...readContainer(container),
    port: pool.parse(textOf(files, "inference-pool.yaml")).spec.targetPorts[0]!.number,
    secondsToEnd: spec!.terminationGracePeriodSeconds ?? null,
    replicas:
      scaling === null
        ? { min: fixed, max: fixed }
        : { min: scaling.spec.minReplicaCount, max: scaling.spec.maxReplicaCount },
    concurrency: Number(scaling?.spec.triggers[0]?.metadata.threshold),
  };
}

test("the pool selects the pods, and the picker, the route and the rights name one another", () => {
  const files = render();
  const { spec, metadata: named } = pool.parse(textOf(files, "inference-pool.yaml"));
  const pods = (textOf(files, "deployment.yaml") as IDeployment).spec!.template;
  expect(pods.metadata?.labels).toMatchObject({ ...spec.selector.matchLabels, "llm-d.ai/engine-type": "vllm" });
  const route = httpRoute.parse(textOf(files, "http-route.yaml"));
  expect(route.spec.rules[0]!.backendRefs).toEqual([
    { group: "inference.networking.k8s.io", kind: "InferencePool", name: named.name },
  ]);
  const service = textOf(files, "picker-service.yaml") as { metadata: { name: string }; spec: { ports: object[] } };
  expect(service.metadata.name).toBe(spec.endpointPickerRef.name);
  expect(service.spec.ports).toContainEqual(expect.objectContaining({ port: spec.endpointPickerRef.port.number }));
  const picker = textOf(files, "picker-deployment.yaml") as IDeployment;
  // The pool must not select its own picker.
  expect(picker.spec!.template.metadata?.labels).not.toMatchObject(spec.selector.matchLabels);
  expect(picker.spec!.template.spec!.containers[0]!.args).toEqual(expect.arrayContaining(["--pool-name", named.name]));
});

test("every object matches its schema, and names are unique for each kind", () => {
  const models = { Deployment: DeploymentModel, Role, RoleBinding, ConfigMap, Service, ServiceAccount };
  const objects = objectsOf(render());
  const own = objects.filter(({ kind }) => kind in models);
  expect(own.map(({ kind }) => kind)).toEqual(expect.arrayContaining(Object.keys(models)));
  for (const object of own) {
    const Model = models[object.kind as keyof typeof models] as unknown as new (data: object) => { validate(): void };
    expect(() => new Model(object).validate()).not.toThrow();
  }
  const names = objects.map(({ kind, metadata: { name } }) => `${kind}/${name}`);
  expect(new Set(names).size).toBe(names.length);
});

test("the picker prefers pods with the prefix, and every plugin that a profile names exists", () => {
  const { data } = textOf(render(), "picker-configuration.yaml") as { data: Record<string, string> };
  const { plugins, schedulingProfiles } = configuration.parse(parse(data["picker.yaml"]!));
  const types = plugins.map(({ type }) => type);
  for (const { pluginRef } of schedulingProfiles[0]!.plugins) expect(types).toContain(pluginRef);
  expect(schedulingProfiles[0]!.plugins[0]).toEqual({ pluginRef: "prefix-cache-scorer", weight: 3 });
});

test.for<[object, RegExp]>([
  [{ replicas: { min: 0, max: 2 } }, /^replicas\.min: the endpoint picker wakes no pods/],
  [{ prometheusUrl: undefined }, /^prometheusUrl: it is missing/],
  [
    { worker: true, environment: { JOB_SOURCE: "redis://redis?queue=a" } },
    /^worker: an inference pool serves requests/,
  ],
])("unsupported fields of an inference pool are rejected by path: %j", ([changes, expected]) => {
  expect(() => render(changes)).toThrow(expected);
});
