import { Service } from "@kubernetes-models/knative/serving.knative.dev/v1";
import type { IService } from "@kubernetes-models/knative/serving.knative.dev/v1";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { z } from "zod";

import { parseArguments } from "../../functions/cli/arguments.ts";
import { cloudRun } from "../../infra/cloud-run.ts";
import type { RenderedFile } from "../../infra/deployment-target.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";
import { variablesOf } from "../support/deployments/rendered-pods.ts";

const description = {
  name: "pictures",
  image: "europe-docker.pkg.dev/project/images/fovea:1.2.3",
  device: { kind: "cuda", gpu: "l4" },
  resources: { cpu: 4, memoryGiB: 16 },
  replicas: { min: 0, max: 2 },
};

const render = renderWith(cloudRun, description);

function serviceOf([file]: readonly RenderedFile[]): IService {
  return parse(file!.text) as IService;
}

testDeploymentTarget({ target: cloudRun, read, takesCpu: true, maxGraceSeconds: 8 });

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const template = serviceOf(files).spec?.template;
  const container = template?.spec?.containers?.[0];
  const annotations = template?.metadata?.annotations ?? {};
  return {
    image: container?.image ?? "",
    port: Number(container?.startupProbe?.httpGet?.port),
    ...variablesOf(container ?? {}),
    readinessPath: container?.startupProbe?.httpGet?.path ?? "",
    livenessPath: container?.livenessProbe?.httpGet?.path ?? null,
    secondsToEnd: 10,
    numGpus: Number(container?.resources?.limits?.["nvidia.com/gpu"] ?? 0),
    replicas: {
      min: Number(annotations["autoscaling.knative.dev/minScale"]),
      max: Number(annotations["autoscaling.knative.dev/maxScale"]),
    },
    concurrency: template?.spec?.containerConcurrency ?? null,
  };
}

test("the service matches Knative's schema", () => {
  expect(() => new Service(serviceOf(render())).validate()).not.toThrow();
});

test("PORT is set by the platform from the container's port", () => {
  const container = serviceOf(render()).spec?.template?.spec?.containers?.[0];
  expect(container?.ports).toEqual([{ name: "http1", containerPort: 8000 }]);
  expect(container?.env?.map(({ name }) => name)).not.toContain("PORT");
});

test("a GPU is named in Cloud Run's field, and CPU stays allocated between requests", () => {
  const template = serviceOf(render()).spec?.template;
  expect(template?.spec?.nodeSelector).toEqual({ "run.googleapis.com/accelerator": "nvidia-l4" });
  expect(template?.metadata?.annotations).toMatchObject({ "run.googleapis.com/cpu-throttling": "false" });
});

test("the startup probe lasts as long as a start may take", () => {
  const container = serviceOf(render({ timeouts: { startupSeconds: 1795 } })).spec?.template?.spec?.containers?.[0];
  const { periodSeconds = 0, failureThreshold = 0, timeoutSeconds = 0 } = container?.startupProbe ?? {};
  expect(periodSeconds * failureThreshold).toBe(1800);
  expect(timeoutSeconds).toBeLessThanOrEqual(periodSeconds);
});

const onCpu = (cpu: number, memoryGiB: number) => ({
  device: { kind: "cpu" },
  resources: { cpu, memoryGiB },
  timeouts: { startupSeconds: 600 },
});

test.for([
  [1, 0.5],
  [2, 8],
  [4, 16],
  [6, 4],
  [8, 32],
] as const)("%d CPUs may have %d GiB", ([cpu, memoryGiB]) => {
  const container = serviceOf(render(onCpu(cpu, memoryGiB))).spec?.template?.spec?.containers?.[0];
  expect(container?.resources?.limits).toEqual({ cpu: String(cpu), memory: `${memoryGiB * 1024}Mi` });
});

test.for<[object, RegExp]>([
  [{ timeouts: { startupSeconds: 1801 } }, /^timeouts\.startupSeconds: Cloud Run allows at most 1800 s, got 1801 s\.$/],
  [
    { timeouts: { startupSeconds: 601 }, device: { kind: "cpu" } },
    /^timeouts\.startupSeconds: Cloud Run allows at most 600 s, got 601 s\.$/,
  ],
  [{ timeouts: { requestSeconds: 3601 } }, /^timeouts\.requestSeconds: .* 3600 s, got 3601 s\.$/],
  [{ concurrency: 1001 }, /^concurrency: Cloud Run allows at most 1000, got 1001\.$/],
  [{ device: { kind: "cuda", gpu: "h100" } }, /^device\.gpu: Cloud Run has l4, rtx-pro-6000, not h100\.$/],
  [{ resources: { cpu: 2, memoryGiB: 16 } }, /^resources\.cpu: expected at least 4 with l4, got 2\.$/],
  [{ resources: { cpu: 4, memoryGiB: 8 } }, /^resources\.memoryGiB: expected at least 16 with l4, got 8\.$/],
  [{ ...onCpu(0.5, 1) }, /^resources\.cpu: Cloud Run has 1, 2, 4, 6, 8 CPUs without a GPU, got 0\.5\.$/],
  [{ ...onCpu(3, 4) }, /^resources\.cpu: .*, got 3\.$/],
  [{ ...onCpu(1, 4.5) }, /^resources\.memoryGiB: expected 0\.5 to 4 with 1 CPU, got 4\.5\.$/],
  [{ ...onCpu(2, 0.25) }, /^resources\.memoryGiB: expected 0\.5 to 8 with 2 CPUs, got 0\.25\.$/],
  [{ ...onCpu(4, 1) }, /^resources\.memoryGiB: expected 2 to 16 with 4 CPUs, got 1\.$/],
  [{ ...onCpu(8, 33) }, /^resources\.memoryGiB: expected 4 to 32 with 8 CPUs, got 33\.$/],
  [{ secrets: { API_KEY: "api.key" } }, /^secrets\.API_KEY: expected the name of a secret in Secret Manager: letters/],
  [{ s3Role: "arn:aws:iam::1:role/x" }, /^s3Role: Cloud Run has no AWS roles/],
])("unsupported fields of Cloud Run are rejected by path: %j", ([changes, expected]) => {
  expect(() => render(changes)).toThrow(expected);
});

describe("batches", () => {
  const batch = { input: "s3://bucket/in.jsonl", output: "s3://bucket/out.jsonl" };

  /** The fields of Job in the YAML reference of Cloud Run and Google's discovery document run.v1; read on 2026-11-22. */
  const job = z.strictObject({
    apiVersion: z.literal("run.googleapis.com/v1"),
    kind: z.literal("Job"),
    metadata: z.strictObject({ name: z.string() }),
    spec: z.strictObject({
      template: z.strictObject({
        metadata: z.strictObject({ annotations: z.record(z.string(), z.string()) }).optional(),
        spec: z.strictObject({
          taskCount: z.int(),
          template: z.strictObject({
            spec: z.strictObject({
              nodeSelector: z.record(z.string(), z.string()).optional(),
              maxRetries: z.int().min(0).max(10),
              timeoutSeconds: z.string().regex(/^\d+$/),
              containers: z.array(
                z.strictObject({
                  name: z.string(),
                  image: z.string(),
                  args: z.array(z.string()),
                  env: z.array(z.strictObject({ name: z.string(), value: z.string() })),
                  resources: z.strictObject({ limits: z.record(z.string(), z.string()) }),
                }),
              ),
            }),
          }),
        }),
      }),
    }),
  });

  test("become a job whose attempts resume, with the arguments of the command line", () => {
    const [file] = render({ batch });
    const { template } = job.parse(parse(file!.text)).spec.template.spec;
    expect(file!.path).toBe("job.yaml");
    expect(template.spec).toMatchObject({
      nodeSelector: { "run.googleapis.com/accelerator": "nvidia-l4" },
      maxRetries: 10,
      timeoutSeconds: "3600",
    });
    const { args } = template.spec.containers[0]!;
    expect(args).toEqual(["batch", "--input", batch.input, "--output", batch.output]);
    expect(parseArguments(args)).toMatchObject({ command: "batch", files: batch });
  });

  test.for<[object, RegExp]>([
    [{ batch: { ...batch, timeoutSeconds: 3601 } }, /^batch\.timeoutSeconds: .* at most 3600 s, got 3601 s\.$/],
    [{ batch: { ...batch, input: "in.jsonl" } }, /^batch\.input: expected s3:\/\/bucket\/key, got "in.jsonl"\.$/],
    [
      { batch, worker: true, replicas: { min: 1, max: 1 }, environment: { JOB_SOURCE: "redis://host?queue=a" } },
      /^batch: expected either a batch or worker: true, got both\.$/,
    ],
  ])("%j is rejected by path", ([changes, expected]) => {
    expect(() => render(changes)).toThrow(expected);
  });

  test("an attempt without a GPU may last for days", () => {
    const cpu = { device: { kind: "cpu" }, batch: { ...batch, timeoutSeconds: 604_800 } };
    expect(job.parse(parse(render(cpu)[0]!.text)).spec.template.spec.template.spec.timeoutSeconds).toBe("604800");
  });
});

describe("workers", () => {
  const workers = { worker: true, environment: { JOB_SOURCE: "redis://redis.queues:6380/2?queue=pictures" } };

  /** The fields of WorkerPool in Google's discovery document run.v1, revision of google-api-python-client 2.202.0. */
  const workerPool = z.strictObject({
    apiVersion: z.literal("run.googleapis.com/v1"),
    kind: z.literal("WorkerPool"),
    metadata: z.strictObject({ name: z.string(), annotations: z.record(z.string(), z.string()) }),
    spec: z.strictObject({
      template: z.strictObject({
        metadata: z.strictObject({ annotations: z.record(z.string(), z.string()) }).optional(),
        spec: z.strictObject({
          nodeSelector: z.record(z.string(), z.string()).optional(),
          containers: z.array(
            z.strictObject({
              name: z.string(),
              image: z.string(),
              args: z.array(z.string()),
              env: z.array(z.strictObject({ name: z.string(), value: z.string() })),
              resources: z.strictObject({ limits: z.record(z.string(), z.string()) }),
              startupProbe: z.looseObject({}),
              livenessProbe: z.looseObject({}),
            }),
          ),
        }),
      }),
    }),
  });

  test("become a worker pool with a fixed number of instances, and no port for requests", () => {
    const [file] = render({ ...workers, replicas: { min: 2, max: 2 } });
    const { metadata, spec } = workerPool.parse(parse(file!.text));
    expect(file!.path).toBe("worker-pool.yaml");
    expect(metadata.annotations).toEqual({
      "run.googleapis.com/scalingMode": "manual",
      "run.googleapis.com/manualInstanceCount": "2",
    });
    expect(spec.template.spec.containers[0]!.args).toEqual(["worker"]);
  });

  test("that would have to scale are rejected, because nothing counts their jobs", () => {
    expect(() => render({ ...workers, replicas: { min: 0, max: 2 } })).toThrow(
      /^replicas: Cloud Run does not scale worker pools.* got 0 and 2\.$/,
    );
  });
});
