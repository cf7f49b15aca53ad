/**
 * Baseten's config.yaml, against the fields of TrussConfig in truss 0.18.35, and its scaling against
 * https://docs.baseten.co/reference/management-api, both read on 2026-11-22.
 */
import { expect, test } from "vitest";
import { parse } from "yaml";
import { z } from "zod";

import { baseten } from "../../infra/baseten.ts";
import type { RenderedFile } from "../../infra/deployment-target.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";

const trussConfig = z.strictObject({
  model_name: z.string(),
  base_image: z.strictObject({ image: z.string() }),
  docker_server: z.strictObject({
    start_command: z.string(),
    // 8080 is the port of Baseten's own proxy.
    server_port: z.int().refine((port) => port !== 8080),
    predict_endpoint: z.string(),
    readiness_endpoint: z.string(),
    liveness_endpoint: z.string(),
    run_as_user_id: z.int().min(1),
  }),
  environment_variables: z.record(z.string(), z.string()),
  secrets: z.record(z.string(), z.null()),
  resources: z.strictObject({
    cpu: z.string(),
    memory: z.string(),
    accelerator: z.enum(["T4", "L4", "L40S", "RTX_PRO_6000", "A100", "H100", "H200"]).optional(),
  }),
  runtime: z.strictObject({
    predict_concurrency: z.int().min(1).max(256),
    health_checks: z.strictObject({ startup_threshold_seconds: z.int().min(10).max(3000) }),
  }),
});
const autoscaling = z.strictObject({
  min_replica: z.int().min(0),
  max_replica: z.int().min(1),
  concurrency_target: z.int().min(1),
  scale_down_delay: z.int(),
});

const description = {
  name: "pictures",
  image: "docker.io/example/fovea:1.2.3",
  device: { kind: "cuda", gpu: "h100" },
  resources: { cpu: 4, memoryGiB: 16 },
  replicas: { min: 0, max: 2 },
};

function render(changes: object = {}) {
  return configOf(renderWith(baseten, description)(changes));
}

function configOf([config, scaling]: readonly RenderedFile[]) {
  return { ...trussConfig.parse(parse(config!.text)), scaling: autoscaling.parse(JSON.parse(scaling!.text)) };
}

testDeploymentTarget({ target: baseten, read, takesCpu: true, maxGraceSeconds: 8 });

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const { base_image: image, docker_server: server, resources, scaling, ...config } = configOf(files);
  return {
    image: image.image,
    port: server.server_port,
    environment: config.environment_variables,
    secrets: Object.fromEntries(
      [...server.start_command.matchAll(/export (\w+)="\$\(cat \/secrets\/([\w.-]+)\)"/g)].map(([, name, secret]) => [
        name!,
        secret!,
      ]),
    ),
    readinessPath: server.readiness_endpoint,
    livenessPath: server.liveness_endpoint,
    secondsToEnd: null,
    numGpus: resources.accelerator === undefined ? 0 : 1,
    replicas: { min: scaling.min_replica, max: scaling.max_replica },
    concurrency: scaling.concurrency_target,
  };
}

test("secrets are declared by name, and read from their files before the server replaces the shell", () => {
  const { secrets, docker_server: server } = render({ secrets: { API_KEY: "one", REDIS_URL: "two" } });
  expect(secrets).toEqual({ one: null, two: null });
  expect(server.start_command).toMatch(/^sh -c '.*; exec node \/app\/functions\/cli\/main\.js serve'$/);
});

test.for<[object, RegExp]>([
  [{ timeouts: { requestSeconds: 1201 } }, /^timeouts\.requestSeconds: Baseten allows at most 1200 s, got 1201 s\.$/],
  [{ device: { kind: "cuda", gpu: "rtx-4090" } }, /^device\.gpu: Baseten has .*h200, not rtx-4090\.$/],
  [{ asyncOutput: "s3://results" }, /^asyncOutput: Baseten calls a webhook/],
])("unsupported fields of Baseten are rejected by path: %j", ([changes, expected]) => {
  expect(() => render(changes)).toThrow(expected);
});
