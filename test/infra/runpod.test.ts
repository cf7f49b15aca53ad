import { expect, test } from "vitest";
import { z } from "zod";

import { loadConfig } from "../../functions/settings/config.ts";
import type { RenderedFile } from "../../infra/deployment-target.ts";
import { runPod } from "../../infra/runpod.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";
import { createTestApp } from "../support/service/test-app.ts";

/** CreateEndpointRequest of api-reference-v2/openapi.json in runpod/docs at a900806, 2026-08-20; others are refused. */
const createEndpointRequest = z.strictObject({
  name: z.string().min(1),
  type: z.enum(["QUEUE", "LOAD_BALANCER"]),
  image: z.string(),
  args: z.string().optional(),
  disk: z.int().min(1),
  ports: z.array(z.string()).optional(),
  env: z.record(z.string(), z.string()),
  gpu: z.strictObject({
    pools: z.array(z.string()).min(1),
    count: z.int().min(1),
    minCudaVersion: z
      .string()
      .regex(/^\d+\.\d+$/)
      .optional(),
  }),
  workers: z.strictObject({ min: z.int().min(0), max: z.int().min(0), idleTimeout: z.int().min(1).max(3600) }),
  scaling: z.discriminatedUnion("type", [
    z.strictObject({ type: z.literal("REQUEST_COUNT"), requestCount: z.int().min(1) }),
    z.strictObject({ type: z.literal("QUEUE_DELAY"), queueDelay: z.number().min(0.5) }),
  ]),
  timeout: z.int(),
  flashboot: z.enum(["OFF", "FLASHBOOT", "PRIORITY_FLASHBOOT"]),
});

interface Endpoint {
  readonly type: string;
  readonly image: string;
  readonly ports: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly gpu: { readonly pools: readonly string[]; readonly count: number; readonly minCudaVersion?: string };
  readonly workers: { readonly min: number; readonly max: number; readonly idleTimeout: number };
  readonly scaling: { readonly type: string; readonly requestCount: number };
  readonly timeout: number;
}

const description = {
  name: "pictures",
  image: "docker.io/example/fovea:1.2.3",
  device: { kind: "cuda", gpu: "h100" },
  resources: { cpu: 4, memoryGiB: 16 },
  replicas: { min: 0, max: 2 },
};

function render(changes: object = {}): Endpoint {
  return endpointOf(renderWith(runPod, description)(changes));
}

function endpointOf([file]: readonly RenderedFile[]): Endpoint {
  return createEndpointRequest.parse(JSON.parse(file!.text)) as Endpoint;
}

testDeploymentTarget({ target: runPod, read, takesCpu: false, maxGraceSeconds: 8 });

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const { image, env, ports, gpu, workers, scaling } = endpointOf(files);
  const secretOf = (value: string): string | undefined => /^\{\{ RUNPOD_SECRET_(.+) \}\}$/.exec(value)?.[1];
  const port = Number(env.PORT_HEALTH);
  expect(ports).toEqual([`${port}/http`]);
  return {
    image,
    port,
    environment: Object.fromEntries(Object.entries(env).filter(([, value]) => secretOf(value) === undefined)),
    secrets: Object.fromEntries(
      Object.entries(env).flatMap(([name, value]) => {
        const secret = secretOf(value);
        return secret === undefined ? [] : [[name, secret]];
      }),
    ),
    readinessPath: env.HEALTH_CHECK_PATH!,
    livenessPath: null,
    secondsToEnd: null,
    numGpus: gpu.count,
    replicas: { min: workers.min, max: workers.max },
    concurrency: scaling.requestCount,
  };
}

test("the load balancer probes /ping, which returns 204 while the model loads, 200 when loaded, and neither when draining", async () => {
  const { type, scaling, env } = render();
  expect({ type, scaler: scaling.type }).toEqual({ type: "LOAD_BALANCER", scaler: "REQUEST_COUNT" });
  const { app, engine, service } = createTestApp({ config: loadConfig(env) });
  engine.state = "loading";
  expect((await app.request(env.HEALTH_CHECK_PATH!)).status).toBe(204);
  engine.state = "ready";
  expect((await app.request(env.HEALTH_CHECK_PATH!)).status).toBe(200);
  await service.drain(0);
  expect((await app.request(env.HEALTH_CHECK_PATH!)).status).toBe(503);
});

test("workers on a GPU have the CUDA version that the image's libraries need", () => {
  expect(render().gpu).toEqual({ pools: ["ADA_80_PRO"], count: 1, minCudaVersion: "13.0" });
  expect(render({ device: { kind: "webgpu", gpu: "l4" } }).gpu).toEqual({ pools: ["AMPERE_24"], count: 1 });
});

test("the request timeout is given in milliseconds", () => {
  expect(render({ timeouts: { requestSeconds: 120 } }).timeout).toBe(120_000);
});

test.for<[object, RegExp]>([
  [{ timeouts: { requestSeconds: 331 } }, /^timeouts\.requestSeconds: RunPod allows at most 330 s, got 331 s\.$/],
  [{ device: { kind: "cuda", gpu: "t4" } }, /^device\.gpu: RunPod has l4, .*h200, not t4\.$/],
  [{ s3Role: "arn:aws:iam::1:role/x" }, /^s3Role: RunPod has no roles/],
])("unsupported fields of RunPod are rejected by path: %j", ([changes, expected]) => {
  expect(() => render(changes)).toThrow(expected);
});

test("workers take jobs of RunPod's own queue, which wakes them from zero", () => {
  const workers = { worker: true, environment: { JOB_SOURCE: "runpod" } };
  expect(render(workers)).toMatchObject({
    type: "QUEUE",
    args: "worker",
    scaling: { type: "QUEUE_DELAY", queueDelay: 4 },
    workers: { min: 0, max: 2 },
  });
  const elsewhere = { worker: true, environment: { JOB_SOURCE: "redis://redis?queue=a" } };
  expect(() => render(elsewhere)).toThrow(/^worker: RunPod's load balancer scales by requests/);
});
